"""From a PyTorch module to an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from .errors import ExportError
from .io_metadata import IO_KEY, describe_io
from .repairs import repair
from .traces import shorten_traces

if TYPE_CHECKING:
    from torch import nn

# A protobuf message ends at 2 GiB; the graph needs room beside its weights.
MAX_INLINE_BYTES = 1 << 30


@dataclass(frozen=True)
class Exported:
    """What :func:`export` made.

    Attributes
    ----------
    model
        The ONNX model.
    path
        Where it was written, or None.
    warnings
        What PyTorch and the exporter said meanwhile, each message once.
    repairs
        Names of the repairs that the graph needed to run in ONNX Runtime.
    """

    model: ir.Model
    path: Path | None
    warnings: tuple[str, ...]
    repairs: tuple[str, ...] = ()

    @property
    def input_names(self) -> list[str]:
        """Names of the graph's inputs, in the order of the example inputs."""
        return [str(value.name) for value in self.model.graph.inputs]

    @property
    def output_names(self) -> list[str]:
        """Names of the graph's outputs, in the order of the module's."""
        return [str(value.name) for value in self.model.graph.outputs]

    @property
    def opset(self) -> int:
        """Version of the standard operator set that the file uses."""
        return self.model.opset_imports[""]

    def serialize(self) -> bytes:
        """Return the model as the bytes of one file."""
        return ir.to_proto(self.model).SerializeToString()


def export(
    module: nn.Module,
    example_inputs: Mapping[str, Any] | Sequence[Any],
    path: str | os.PathLike[str] | None = None,
    *,
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None = None,
    opset_version: int | None = None,
    output_names: Sequence[str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Exported:
    """Export a module in evaluation mode to ONNX, with the names of its own parameters.

    The module is left as it was: the mode of every submodule, its ``forward`` and PyTorch's attention fast
    path change for the export only.

    Parameters
    ----------
    module
        Its ``forward`` takes tensors by name, those that it takes as ``**kwargs`` included.
    example_inputs
        Tensors by parameter name, or in the order of ``forward``'s parameters. Values that are no tensors are
        fixed in the file. A dynamic axis needs an example size of at least 2.
    path
        File to write. Weights of more than 1 GiB go into ``<name>.data`` beside it. None writes nothing.
    dynamic_shapes
        ``{input: {axis: name}}``: the axes that stay free. One name is one size.
    opset_version
        ONNX operator set; None takes the exporter's default.
    output_names
        Names of the outputs. By default the keys that the module returns; ``output`` for a lone tensor and
        ``output_0``, ``output_1``, ... for a tuple.
    roles
        Role of an input where the default is wrong: ``tokens``, ``mask``, ``positions``, ``packing`` or
        ``other``.

    Returns
    -------
    Exported

    Raises
    ------
    ExportError
        If PyTorch is not installed, a name or an example size doesn't fit, or the module can't be traced.

    Examples
    --------
    >>> exported = export(  # doctest: +SKIP
    ...     encoder,
    ...     {"src": torch.randn(2, 5, 64), "attention_mask": torch.ones(2, 5, dtype=torch.int64)},
    ...     "encoder.onnx",
    ...     dynamic_shapes={"src": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "seq"}},
    ... )
    """
    try:
        from .capture import capture
    except ModuleNotFoundError as error:
        raise ExportError("export needs PyTorch; pip install 'maskport[torch]'") from error

    model, warnings = capture(module, example_inputs, dynamic_shapes or {}, opset_version, output_names)
    repairs = repair(model)
    shorten_traces(model)
    model.metadata_props[IO_KEY] = describe_io(model.graph, module, roles or {})
    if path is None:
        return Exported(model, None, warnings, repairs)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = sum(
        value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None
    )
    ir.save(model, path, external_data=f"{path.name}.data" if weights > MAX_INLINE_BYTES else None)
    return Exported(model, path, warnings, repairs)
