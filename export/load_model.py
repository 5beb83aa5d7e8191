"""A model of any form: a path, bytes, a proto, or one that is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir

from .errors import InspectError, first_line

__all__ = ["load_model"]

# Of a library's message.
MOST = 200


def load_model(model: Any) -> tuple[ir.Model, str]:
    """Load a model of any form, and say its name; an `ir.Model` is copied."""
    if isinstance(model, ir.Model):
        return model.clone(), model.graph.name or "model"
    if isinstance(model, bytes) or hasattr(model, "SerializeToString"):
        import onnx

        try:
            proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.ModelProto()
            if not isinstance(model, bytes):
                # onnx_ir names the tensors of constants where they are.
                proto.CopyFrom(model)
            return ir.from_proto(proto), proto.graph.name or "model"
        except Exception as error:
            raise InspectError(f"these bytes are no ONNX model: {first_line(error)[:MOST]}") from error
    path = Path(model)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise InspectError(f"{path} is {what}; give the path of an ONNX file")
    try:
        loaded = ir.load(path)
    except Exception as error:
        raise InspectError(f"{path} is no ONNX model: {first_line(error)[:MOST]}") from error
    if not (loaded.graph.inputs or loaded.graph.outputs or len(loaded.graph)):
        raise InspectError(f"{path} is no ONNX model: it has no graph")
    _check_external_data(path, loaded)
    return loaded, path.name


def _check_external_data(path: Path, model: ir.Model) -> None:
    """Refuse data that isn't there, or that lies outside the model's folder."""
    folder = path.absolute().parent.resolve()
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            data = (folder / tensor.location).resolve()
            if not data.is_relative_to(folder):
                raise InspectError(
                    f"{path} has external data outside its folder, which is refused: {value.name!r} is in "
                    f"{str(tensor.location)!r}; put the data beside the model"
                )
            if not data.is_file():
                raise InspectError(
                    f"{path} misses its external data: {value.name!r} is in {str(tensor.location)!r}, which isn't "
                    "there; keep the model and its data in one folder"
                )
