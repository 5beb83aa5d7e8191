"""The files and batches of a run, in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...export.cases.layout import Layout
from ...runtime import Session
from ..errors import ToolError
from ..files import save_arrays
from ..inputs import draw_inputs, read_inputs
from ..model_layout import layout_of
from .batches import Arrays
from .candidates import CHECKPOINT, MODEL, MODEL_23, MODULE
from .subjects import SUBJECTS, build, checkpoint

Told = dict[str, str]


@dataclass
class Material:
    """What the candidates begin with.

    Attributes
    ----------
    folder
        Of everything that is written.
    subject
        Its name, or the path of a file.
    sources
        What a candidate's `source` stands for, by its name.
    missing
        Why a source isn't there, by its name.
    layout
        Axes and masks of the subject.
    examples
        Inputs, by name.
    """

    folder: Path
    subject: str
    sources: dict[str, str]
    missing: Told
    layout: Layout
    examples: Mapping[str, np.ndarray]

    @property
    def what(self) -> str:
        """What the subject is."""
        return SUBJECTS[self.subject].what if self.subject in SUBJECTS else self.subject

    @property
    def io(self) -> dict[str, Any]:
        """The layout, as another process reads it."""
        return {
            "inputs": {
                name: {"role": value.role, "axes": value.axes, "pad": value.pad}
                for name, value in self.layout.inputs.items()
            },
            "outputs": {name: {"axes": axes} for name, axes in self.layout.outputs.items()},
        }

    def write(self, name: str, batches: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
        """Write batches, and return their files."""
        paths = []
        for index, batch in enumerate(batches):
            save_arrays(path := self.folder / "batches" / f"{name}-{index}.npz", batch)
            paths.append(str(path))
        return paths


def from_file(path: Path, folder: Path, inputs: Path | None) -> Material:
    """Take an ONNX file.

    Raises
    ------
    MaskportError
        If it, or the file of inputs, can't be read.
    """
    session = Session(path, device="cpu")
    examples = draw_inputs(session, {}) if inputs is None else _given(inputs, session)
    missing = dict.fromkeys((MODULE, CHECKPOINT), "a file was given, no module")
    missing[MODEL_23] = "a file was given: it is measured at its own opset"
    return Material(folder, str(path), {MODEL: str(path.absolute())}, missing, layout_of(session), examples)


def from_module(name: str, folder: Path, inputs: Path | None) -> Material:
    """Build a subject and export it at both opsets.

    Raises
    ------
    MaskportError, ExportError
        If it can't be built, or not be exported at the default opset.
    """
    from ...export import export
    from ...export.errors import ExportError

    source = build(name)
    module, example, shapes = source.module, source.example_inputs, source.dynamic_shapes
    # Unchecked: every candidate is compared with the module all the same.
    export(module, example, model := folder / MODEL, dynamic_shapes=shapes, check=False)
    sources, missing = {MODULE: name, MODEL: str(model)}, {}
    try:
        export(module, example, newer := folder / MODEL_23, opset_version=23, dynamic_shapes=shapes, check=False)
        sources[MODEL_23] = str(newer)
    except ExportError as error:
        missing[MODEL_23] = f"the export failed: {next(iter(str(error).splitlines()), '')}"
    if (found := checkpoint(name)) is not None:
        sources[CHECKPOINT] = str(found)
    else:
        missing[CHECKPOINT] = "the subject has no checkpoint of transformers to convert"
    session = Session(model, device="cpu")
    examples = {key: np.asarray(value) for key, value in _named(source).items()}
    if inputs is not None:
        examples = _given(inputs, session)
    return Material(folder, name, sources, missing, layout_of(session), examples)


def _named(source: Any) -> dict[str, Any]:
    import torch

    from ...export.tracing.example_inputs import name_inputs

    named = name_inputs(source.module.forward, source.example_inputs)
    return {name: value.numpy() for name, value in named.items() if isinstance(value, torch.Tensor)}


def _given(path: Path, session: Session) -> Arrays:
    found = read_inputs(path, session)
    if missing := set(session.input_names) - found.keys():
        raise ToolError(f"{path} has no {', '.join(sorted(missing))}; the model takes {', '.join(session.input_names)}")
    return {name: np.asarray(found[name]) for name in session.input_names}
