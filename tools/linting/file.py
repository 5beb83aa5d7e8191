"""MP5xx: the file itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

from .rule import Found, Rule
from .subject import Subject

__all__ = ["FILE"]

# Where a path begins: a drive, or a folder that machines have at their root.
ABSOLUTE = re.compile(
    r"""(?<![\w./:])(?:[A-Za-z]:[\\/](?![\\/])|/(?:home|Users|root|tmp|mnt|opt|usr|var|srv|data|work\w*|builds?|private|content)/)"""
    r"""[^\s"',:;<>|()\[\]]*"""
)
LONGEST = 60


def _absolute_paths(x: Subject) -> Iterator[Found]:
    folders: dict[str, tuple[int, ir.Node | None]] = {}
    for where, text in _texts(x):
        for match in ABSOLUTE.finditer(text):
            folder = re.split(r"[\\/]", match[0])
            name = "/".join(folder[:3])
            count, node = folders.get(name, (0, where))
            folders[name] = count + 1, node
    for name, (count, node) in folders.items():
        yield Found(f"it names {name[:LONGEST]}, {count} time{'s' if count > 1 else ''}", node)


def _texts(x: Subject) -> Iterator[tuple[ir.Node | None, str]]:
    """Yield what the file says in words, with the node that it is said of."""
    yield from ((None, text) for text in (x.model.doc_string, x.graph.doc_string) if text)
    yield from ((None, text) for text in (*x.metadata.values(), *x.graph.metadata_props.values()))
    for node in x.graph.all_nodes():
        yield from ((node, text) for text in (node.doc_string, *node.metadata_props.values()) if text)
    for value in x.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            yield None, str(value.const_value.location)


def _unused(x: Subject) -> Iterator[Found]:
    for name, value in x.inputs.items():
        if value not in x.effective and name not in x.masks and name not in x.assumed:
            yield Found(f"nothing of the input {name} but its size reaches an output")


def _untrue(x: Subject) -> Iterator[Found]:
    for node, reason in x.attention.reasons.items():
        if reason.fault == "claim":
            yield Found(reason.reason, node)


FILE = (
    Rule(
        "MP501",
        "absolute-path",
        "warning",
        "The file names a folder of the machine that made it.",
        "Stack traces of exporters hold user names and the places of source; they go wherever the file goes.",
        "`maskport export` makes them relative, and `--strip-traces` drops them.",
        _absolute_paths,
    ),
    Rule(
        "MP502",
        "input-without-effect",
        "warning",
        "Nothing of an input but its size reaches an output.",
        "The exporter lost it, or callers give it for nothing.",
        "Take it out of the module's forward, or look where it got lost: `maskport validate` against the module.",
        _unused,
    ),
    Rule(
        "MP503",
        "untrue-claim",
        "error",
        "The file says of an attention what its graph doesn't do.",
        "Programs trust `maskport.sites`: the graph was changed after it was written.",
        "Optimize the source again.",
        _untrue,
    ),
)
