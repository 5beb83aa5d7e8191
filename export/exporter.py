"""From a PyTorch module to an ONNX file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from .cases.layout import Layout
from .certificate.claim import Certificate
from .certificate.digest import digest_of
from .check.checked import ASSUMES_KEY, CERTIFICATE_KEY, METADATA_VERSION, PAD_SAFE_KEY, Checked
from .errors import CheckFailed, ExportError, InspectError
from .files import prepare, save
from .inspector import inspect
from .io_metadata import IO_KEY, describe_io
from .repairs import repair
from .sites_metadata import claim, write_sites
from .tracing.traces import module_packages, shorten_traces, strip_all_traces

if TYPE_CHECKING:
    import torch
    from torch import nn


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
    checked
        What was run and compared with the module; None if nothing was.
    """

    model: ir.Model
    path: Path | None
    warnings: tuple[str, ...]
    repairs: tuple[str, ...] = ()
    checked: Checked | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the check found right but worth knowing, such as rows without a key that differ."""
        return () if self.checked is None else tuple(self.checked.notes)

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
    dtype: str | torch.dtype | None = None,
    output_names: Sequence[str] | None = None,
    roles: Mapping[str, str] | None = None,
    pads: Mapping[str, int] | None = None,
    unused: Collection[str] = (),
    mixes_rows: bool = False,
    strip_traces: bool = False,
    check: bool = True,
) -> Exported:
    """Export a module in evaluation mode to ONNX, with the names of its own parameters, and check the file.

    The module is left as it was: the mode of every submodule, its element type, its ``forward`` and PyTorch's
    attention fast path change for the export only.

    Before anything is written the model runs in ONNX Runtime beside the module, at other sizes than the example's
    and with padding on the right, on the left and in between; valid rows must agree, and every input must matter.

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
    dtype
        Element type of weights and floating-point inputs in the file: ``"float16"``, ``"bfloat16"``, ``"float32"``,
        ``"float64"`` or PyTorch's. None takes the module's own. ONNX Runtime runs bfloat16 on CUDA only: there the
        check runs the operators' reference, at small sizes.
    output_names
        Names of the outputs. By default the keys that the module returns; ``output`` for a lone tensor and
        ``output_0``, ``output_1``, ... for a tuple.
    roles
        Role of an input where the default is wrong: ``tokens``, ``mask``, ``positions``, ``packing`` or
        ``other``.
    pads
        The value of a mask [batch, seq] that hides a key, where neither a mask expression of the module nor the
        input's name tells it: 0 for ``...mask``, 1 for ``...key_padding_mask``.
    unused
        Inputs that may have no effect. Every other must have one.
    mixes_rows
        Whether the rows of a batch are meant to depend on each other.
    strip_traces
        Whether to drop the stack traces, which tell for each node the line of the module.
    check
        False skips the check, and the file says nothing about one.

    Returns
    -------
    Exported

    Raises
    ------
    ExportError
        If PyTorch or ONNX Runtime is not installed, a name or an example size doesn't fit, the module can't be
        traced, or the path can't be written.
    CheckFailed
        If the file doesn't do what the module does: a dimension is baked in, an input has no effect, a value, rank or
        element type differs, NaN appears, rows of a batch read each other.

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
        from .check.check import check as check_against
        from .check.pad_safe import unknown_pad_safety
        from .traced import trace
    except ModuleNotFoundError as error:
        raise ExportError("export needs PyTorch; pip install 'maskport[torch]'") from error

    if path is not None:
        path = Path(path)
        prepare(path)
    with trace(module, example_inputs, dynamic_shapes or {}, opset_version, dtype, output_names) as traced:
        model = traced.captured.model
        repairs = repair(model)
        shorten_traces(model, module_packages(module))
        io = describe_io(model.graph, module, roles or {}, pads)
        checked = None
        if check:
            subject = traced.subject(Layout.from_io(io))
            try:
                checked, pad_safe = check_against(subject, traced.captured.bounds, unused, mixes_rows)
            except ExportError as error:
                raise CheckFailed(str(error)) from error
        else:
            pad_safe = unknown_pad_safety("not checked")
    with contextlib.suppress(InspectError):
        # A later tool may leave nothing that can be read back: what each mask meant stays in the file.
        write_sites(model, map(claim, inspect(model, check=False).sites))
    if strip_traces:
        strip_all_traces(model)
    assumes = {"version": METADATA_VERSION, "assumes": []}
    metadata = {IO_KEY: io, PAD_SAFE_KEY: pad_safe, ASSUMES_KEY: assumes}
    model.metadata_props.update({key: json.dumps(value) for key, value in metadata.items()})
    if checked is not None:
        certificate = checked.certificate() | {"digest": digest_of(model)}
        model.metadata_props[CERTIFICATE_KEY] = Certificate.write(certificate)
    if path is not None:
        save(model, path)
    return Exported(model, path, traced.captured.messages, repairs, checked)
