"""A file as the rules see it: parsed once, its attention read once, by the graph alone."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from ...export.check.checked import ASSUMES_KEY, CERTIFICATE_KEY
from ...export.errors import ExportError
from ...export.inspector import Attention, find_claimed
from ...export.io_metadata import read_io
from ...export.load_model import load_model
from ...export.report import SiteReport
from ...export.sites_metadata import SITE_KEY
from ...export.symbolic.interpreter import Interpreter
from ...export.symbolic.sites import Site
from ...export.symbolic.terms import Term, TooLarge
from ...export.symbolic.values import NotFollowed
from ..errors import ToolError

__all__ = ["Subject", "producers"]

# What tells a size of its input, and nothing of what is in it.
SIZES = ("Shape", "Size")
MASK_NAME = re.compile(r"mask|(^|_)(keep|valid)(_|$)|(^|_)(pad|padding)$", re.IGNORECASE)
MASK_ROLES = ("mask", "packing")


class Subject:
    """One model.

    Attributes
    ----------
    model : ir.Model
        Its functions are inlined and its shapes inferred.
    name : str
        The file's name.
    attention : Attention
        What was read of it.

    Raises
    ------
    ToolError
        If a node has fewer or more inputs than its operator takes: nothing that is said of such a graph holds.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.name = load_model(model)
        self.path = Path(model) if isinstance(model, str | Path) else None
        self.metadata = dict(self.model.metadata_props)
        _check_inputs(self.model, self.name)
        self.attention: Attention = find_claimed(self.model, self.name, check=False)

    @property
    def graph(self) -> ir.Graph:
        """The graph."""
        return self.model.graph

    @functools.cached_property
    def inputs(self) -> dict[str, ir.Value]:
        """What the caller gives, by name; initializers that could be replaced are none."""
        weights = self.graph.initializers
        return {str(value.name): value for value in self.graph.inputs if value.name not in weights}

    @functools.cached_property
    def sites(self) -> list[tuple[Site, SiteReport]]:
        """The attention that was read from the graph, with what is known of each."""
        reports = self.attention.reports
        return [(site, reports[site.node]) for site in self.attention.sites if site.node in reports]

    @functools.cached_property
    def interpreter(self) -> Interpreter:
        """Lengths and elements of values as terms."""
        return self.attention.sites[0].interpreter if self.attention.sites else Interpreter(self.graph)

    def shape(self, value: ir.Value | None) -> tuple[Term, ...] | None:
        """Return the lengths of a value as terms; None if they can't be told."""
        try:
            return None if value is None else self.interpreter.shape(value)
        except (NotFollowed, TooLarge):
            return None

    @functools.cached_property
    def described(self) -> dict[str, dict[str, Any]]:
        """What the file says of its inputs, by their names."""
        try:
            return dict((read_io(self.metadata) or {}).get("inputs", {}))
        except ExportError as error:
            raise ToolError(str(error)) from error

    @functools.cached_property
    def masks(self) -> dict[str, ir.Value]:
        """Inputs that are masks, by what the file says of them or else by their names."""
        return {
            name: value
            for name, value in self.inputs.items()
            if (self.described[name]["role"] in MASK_ROLES if name in self.described else MASK_NAME.search(name))
        }

    @functools.cached_property
    def assumed(self) -> dict[str, set[str]]:
        """What the file takes for granted of its inputs, which Session checks at every run."""
        found: dict[str, set[str]] = {}
        for entry in self._read(ASSUMES_KEY).get("assumes", []):
            found.setdefault(str(entry["input"]), set()).add(str(entry["check"]))
        return found

    @property
    def made_for(self) -> str | None:
        """The target that the file was optimized for."""
        made = self._read(CERTIFICATE_KEY).get("optimized") or {}
        return made.get("target")

    def is_claimed(self, node: ir.Node) -> bool:
        """Whether the file says which attention a node computes."""
        return SITE_KEY in node.metadata_props

    @functools.cached_property
    def effective(self) -> set[ir.Value]:
        """What the outputs depend on by more than its size."""
        return producers(self.graph.outputs)

    def _read(self, key: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self.metadata.get(key, "{}")))
        except (ValueError, TypeError) as error:
            raise ToolError(f"{self.name} says nothing readable in its {key}: {error}; make the file again") from error


def _check_inputs(model: ir.Model, name: str) -> None:
    for node in model.graph.all_nodes():
        version = model.opset_imports.get(node.domain, 1)
        if node.domain or not onnx.defs.has(node.op_type, version):
            continue
        schema = onnx.defs.get_schema(node.op_type, version)
        if not schema.min_input <= len(node.inputs) <= schema.max_input:
            of = f"{node.name or node.outputs[0].name} ({node.op_type})"
            raise ToolError(f"{name} is no valid model: {of} has {len(node.inputs)} inputs; onnx.checker tells more")


def producers(values: Iterable[ir.Value]) -> set[ir.Value]:
    """Return values and all that they are computed from, but for that of which just a size is used."""
    seen: set[ir.Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is not None and node.op_type not in SIZES:
            waiting += _read_by(node)
    return seen


def _read_by(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads, in the graphs that are nested in it as well."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        graphs = {ir.AttributeType.GRAPH: lambda a: [a.as_graph()], ir.AttributeType.GRAPHS: lambda a: a.as_graphs()}
        for graph in graphs.get(attribute.type, lambda a: [])(attribute):
            yield from graph.outputs
            for inner in graph:
                yield from _read_by(inner)
