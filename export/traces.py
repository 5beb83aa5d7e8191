"""The stack traces that the exporter writes on every node, without the folders of this machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import onnx_ir as ir

TRACE_KEY = "pkg.torch.onnx.stack_trace"
FRAME = re.compile(r' *File "(?P<path>[^"]*)", line \d+, in .*(?:\n(?! *File ").*)*\n?')


def shorten_traces(model: ir.Model) -> None:
    """Make every path in the model's stack traces relative to the project or package that it belongs to."""
    roots = sorted({str(Path(entry).resolve()) for entry in [*sys.path, "."]}, key=len, reverse=True)
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        for node in graph.all_nodes():
            if trace := node.metadata_props.get(TRACE_KEY):
                node.metadata_props[TRACE_KEY] = shorten_trace(trace, roots)


def shorten_trace(trace: str, roots: list[str]) -> str:
    """Shorten the paths of one trace: relative to the first of `roots` that holds them, else the file name.

    The frame of this package, which stands between PyTorch and the module, is left out.
    """
    own = str(Path(__file__).resolve().parent)

    def shorten(match: re.Match[str]) -> str:
        path = Path(match["path"])
        if str(path.parent) == own:
            return ""
        if not path.is_absolute():
            return match[0]
        root = next((root for root in roots if path.is_relative_to(root)), str(path.parent))
        return match[0].replace(match["path"], path.relative_to(root).as_posix(), 1)

    return FRAME.sub(shorten, trace)
