"""From the session's keyword arguments to ONNX Runtime's options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from . import denormals
from .errors import InputError
from .placement import RECORD_KEY

LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": ort.GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
# The user's entries come after these and win.
CONFIG = {denormals.KEY: "1", RECORD_KEY: "1"}
SILENT, WARNINGS = 4, 2  # ONNX Runtime's severities


def session_options(
    threads: int | None,
    optimization: str,
    optimized_path: str | os.PathLike[str] | None,
    config: Mapping[str, Any] | None,
    verbose: bool,
) -> ort.SessionOptions:
    """Return ONNX Runtime's options; :class:`~.session.Session` explains the arguments.

    Raises
    ------
    InputError
        If an argument can't be meant. ONNX Runtime takes a negative number of threads and unknown levels in silence.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise InputError(f"threads is {threads!r}; give a number of at least 1, or None for one per core")
    if optimization not in LEVELS:
        raise InputError(f"optimization {optimization!r} is unknown; use {', '.join(LEVELS)}")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.graph_optimization_level = LEVELS[optimization]
    # Every error is raised, with its text; printed as well it would only repeat itself.
    options.log_severity_level = WARNINGS if verbose else SILENT
    for key, value in {**CONFIG, **(config or {})}.items():
        text = str(int(value)) if isinstance(value, bool) else str(value)
        try:
            options.add_session_config_entry(str(key), text)
        except RuntimeError as error:
            raise InputError(f"config has {key!r}: {text!r}, which ONNX Runtime doesn't take: {error}") from error
    if optimized_path is not None:
        if not Path(optimized_path).parent.is_dir():
            raise InputError(f"optimized_path is {optimized_path}, whose folder isn't there; make it first")
        options.optimized_model_filepath = os.fspath(optimized_path)
    return options
