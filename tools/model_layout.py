"""The axes and masks of a file: as its metadata says, else as the names of its inputs do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..export.cases.layout import Label, Layout
from ..export.errors import ExportError
from ..export.io_metadata import IO_KEY, KNOWN, PADS
from ..runtime.inputs import DeclaredValue
from .errors import ToolError


class Declared(Protocol):
    """What is read of a session, or of a file alone."""

    @property
    def inputs(self) -> Sequence[DeclaredValue]:
        """Name, type and shape of each input."""

    @property
    def outputs(self) -> Sequence[DeclaredValue]:
        """And of each output."""

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs."""

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""

    @property
    def metadata(self) -> dict[str, str]:
        """The file's metadata properties."""


def layout_of(session: Declared) -> Layout:
    """Return the layout of a file.

    Without ``maskport.io`` metadata (another exporter's file, or one that another optimizer has rewritten), an input
    [batch, seq] whose name ends in ``mask`` is a padding mask, and one with free batch and length holds tokens.

    Raises
    ------
    ToolError
        If the metadata is broken, or of a version that isn't known.
    """
    if IO_KEY not in session.metadata:
        return _by_name(session)
    try:
        layout = Layout.of(session.metadata)
        # What a session computes by itself is no input of it.
        computed = {item.name for item in getattr(session, "computed", ())}
        layout = replace(layout, inputs={name: i for name, i in layout.inputs.items() if name not in computed})
    except ExportError as error:
        raise ToolError(str(error)) from error
    ranks = {name: len(value.axes) for name, value in layout.inputs.items()}
    fits = ranks == {declared.name: len(declared.shape) for declared in session.inputs}
    if not fits or set(layout.outputs) != set(session.output_names):
        raise ToolError(f"the file's {IO_KEY} metadata doesn't fit its inputs and outputs; export it again")
    return layout


def _by_name(session: Declared) -> Layout:
    inputs: dict[str, dict[str, Any]] = {}
    for declared in session.inputs:
        name, axes = declared.name, declared.shape
        free = len(axes) >= 2 and all(isinstance(axis, str) for axis in axes[:2])
        role = KNOWN.get(name) or ("mask" if name.endswith("mask") else "tokens" if free else "other")
        inputs[name] = {"role": role, "axes": list(axes)}
        if role == "mask" and len(axes) == 2:
            inputs[name]["pad"] = next(pad for end, pad in PADS.items() if name.endswith(end))
    outputs = {node.name: {"axes": [_label(dim) for dim in node.shape]} for node in session.outputs}
    return Layout.from_io({"inputs": inputs, "outputs": outputs})


def _label(dim: object) -> Label:
    return dim if isinstance(dim, int | str) else None
