"""The stack traces that the exporter writes on every node, without the folders of this machine."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from torch import nn

TRACE_KEY = "pkg.torch.onnx.stack_trace"
FRAME = re.compile(r' *File "(?P<path>[^"]*)", line (?P<line>\d+), in (?P<name>.*)(?P<code>(?:\n(?! *File ").*)*)\n?')
OWN = Path(__file__).resolve().parents[1]
# The standard library's folder may hold the others.
LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib"))


def shorten_traces(model: ir.Model, packages: Collection[str] = ()) -> None:
    """Make every path in the model's stack traces relative to the project or package that it belongs to.

    Frames of installed packages are dropped, but for those of `packages`: where the module itself comes from.
    """
    roots = trace_roots()
    for node in _nodes(model):
        if trace := node.metadata_props.get(TRACE_KEY):
            node.metadata_props[TRACE_KEY] = shorten_trace(trace, roots, packages)


def trace_roots() -> list[str]:
    """Return the folders that paths of traces are made relative to, the innermost first."""
    return sorted({str(Path(entry).resolve()) for entry in [*sys.path, "."]}, key=len, reverse=True)


def strip_all_traces(model: ir.Model) -> None:
    """Drop every stack trace."""
    for node in _nodes(model):
        node.metadata_props.pop(TRACE_KEY, None)


def module_packages(module: nn.Module) -> set[str]:
    """Return the packages that a module and its submodules are from, PyTorch aside."""
    return {type(part).__module__.partition(".")[0] for part in module.modules()} - {"torch"}


def shorten_trace(trace: str, roots: list[str], packages: Collection[str] = ()) -> str:
    """Shorten the paths of one trace: relative to the first of `roots` that holds them, else the file name."""

    def shorten(match: re.Match[str]) -> str:
        path = Path(match["path"])
        if not _is_kept(path, packages):
            return ""
        if not path.is_absolute():
            return match[0]
        root = next((root for root in roots if path.is_relative_to(root)), str(path.parent))
        return match[0].replace(match["path"], path.relative_to(root).as_posix(), 1)

    return FRAME.sub(shorten, trace)


def last_frame(trace: str) -> str:
    """Return the innermost frame of a trace as ``file:line in function: code``; empty if there is none."""
    frames = list(FRAME.finditer(trace))
    if not frames:
        return ""
    last = frames[-1]
    code = last["code"].strip().splitlines()
    return f"{last['path']}:{last['line']} in {last['name']}" + (f": {code[0].strip()}" if code else "")


def source_of(node: ir.Node) -> tuple[str, int] | None:
    """Return the file and line that a node was exported from: the innermost of its trace; None if it has none."""
    frames = list(FRAME.finditer(node.metadata_props.get(TRACE_KEY, "")))
    return (frames[-1]["path"], int(frames[-1]["line"])) if frames else None


def _is_kept(path: Path, packages: Collection[str]) -> bool:
    """Whether a frame is the module's own: not of this package, and of no installed one but `packages`."""
    if path.is_relative_to(OWN):
        return False
    library = next((root for root in LIBRARIES if path.is_relative_to(root)), None) if path.is_absolute() else None
    return library is None or path.relative_to(library).parts[0] in packages


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in [model.graph, *(function.graph for function in model.functions.values())]:
        yield from graph.all_nodes()
