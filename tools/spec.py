"""SPEC: how a module is named on the command line."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .builtin import BUILTINS
from .errors import ToolError

if TYPE_CHECKING:
    from torch import nn

FORMS = "a name that `maskport models` lists, package.module:callable, path.py:callable or hf:FOLDER"
RETURNS = (
    "it must return (module, example_inputs, dynamic_shapes), or a torch.nn.Module that has example_inputs() "
    "and may have dynamic_shapes()"
)


@dataclass(frozen=True)
class Source:
    """A module with what its export needs.

    Attributes
    ----------
    module
        In evaluation mode or not, as it came.
    example_inputs
        Tensors by parameter name, or in the order of ``forward``'s parameters.
    dynamic_shapes
        ``{input: {axis: name}}``, the axes that stay free; None if it names none.
    """

    module: nn.Module
    example_inputs: Mapping[str, Any] | Sequence[Any]
    dynamic_shapes: Mapping[str, Mapping[int, str]] | None


def load(spec: str) -> Source:
    """Build the module that a SPEC names.

    Parameters
    ----------
    spec
        A built-in name, ``package.module:callable``, ``path.py:callable`` or ``hf:FOLDER``. The callable takes no
        arguments and returns ``(module, example_inputs, dynamic_shapes)`` or a module that has ``example_inputs()``.

    Raises
    ------
    ToolError
        If it names nothing, or what it names fails or returns something else.
    ExportError
        If the folder of ``hf:`` holds no model that can be built.
    """
    if importlib.util.find_spec("torch") is None:
        raise ToolError(f"{spec!r} needs PyTorch; pip install 'maskport[torch]'")
    if spec in BUILTINS:
        return Source(*BUILTINS[spec].build())
    place, colon, name = spec.rpartition(":")
    if not colon:
        close = difflib.get_close_matches(spec, BUILTINS, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ToolError(f"{spec!r} names no model: {hint}give {FORMS}")
    if place == "hf":
        from ..export.hf import load as load_hf

        return Source(*load_hf(name))
    if not place or not name:
        raise ToolError(f"{spec!r} names no model: give {FORMS}")
    found = _attribute(_module(place, spec), name, spec)
    return _source(found, spec)


def _module(place: str, spec: str) -> ModuleType:
    path = Path(place)
    if path.suffix != ".py":
        # As `python -m` does: a module beside the caller is found, though the command lies elsewhere.
        if "" not in sys.path:
            sys.path.insert(0, "")
        if not all(part.isidentifier() for part in place.split(".")):
            raise ToolError(f"{spec!r} names no model: {place!r} is neither a .py file nor the name of a module")
        return _guarded(lambda: importlib.import_module(place), spec, "can't be imported")
    if not path.is_file():
        raise ToolError(f"{spec!r}: there is no file {place}")
    # Under a name of its own, so that it replaces no module, and beside its siblings, so that it can import them.
    found = importlib.util.spec_from_file_location(f"maskport_spec_{path.stem}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)
    execute = found.loader.exec_module
    _guarded(lambda: execute(module), spec, "can't be imported")
    return module


def _attribute(module: ModuleType, name: str, spec: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
            close = difflib.get_close_matches(name, public, 1)
            hint = f"; did you mean {close[0]!r}?" if close else "; name a callable of that file"
            raise ToolError(f"{spec!r}: the module has no {name!r}{hint}")
        found = getattr(found, part)
    return found


def _source(found: Any, spec: str) -> Source:
    from torch import nn

    if not isinstance(found, nn.Module):
        if not callable(found):
            raise ToolError(f"{spec!r} is of type {type(found).__name__} and can't be called; {RETURNS}")
        make: Callable[[], Any] = found
        found = _guarded(make, spec, "raised")
    if isinstance(found, tuple) and len(found) == 3:
        module, inputs, shapes = found
    elif isinstance(found, nn.Module) and callable(getattr(found, "example_inputs", None)):
        example: Any = found.example_inputs
        module, inputs = found, _guarded(example, spec, "has example_inputs(), which raised")
        shapes = getattr(found, "dynamic_shapes", None)
        if callable(shapes):
            shapes = _guarded(shapes, spec, "has dynamic_shapes(), which raised")
    else:
        raise ToolError(f"{spec!r} returned {_what(found)}; {RETURNS}")
    if not isinstance(module, nn.Module):
        raise ToolError(f"{spec!r} returned {_what(module)} as the module; {RETURNS}")
    if not isinstance(inputs, (Mapping, list, tuple)) or not inputs:
        raise ToolError(
            f"{spec!r} returned {_what(inputs)} as example_inputs; give a dict of tensors by parameter name"
        )
    if shapes is not None and not _is_shapes(shapes):
        raise ToolError(f"{spec!r} returned {_what(shapes)} as dynamic_shapes; give {{input: {{axis: name}}}} or None")
    return Source(module, inputs, shapes)


def _is_shapes(shapes: Any) -> bool:
    return isinstance(shapes, Mapping) and all(isinstance(axes, Mapping) for axes in shapes.values())


def _guarded(call: Callable[[], Any], spec: str, what: str) -> Any:
    # A script that calls sys.exit() must not end the command without a word.
    try:
        return call()
    except (Exception, SystemExit) as error:
        line = next(iter(str(error).splitlines()), "")
        raise ToolError(f"{spec!r} {what}: {type(error).__name__}: {line}") from error


def _what(value: Any) -> str:
    if isinstance(value, tuple | list | Mapping) and not value:
        return f"an empty {type(value).__name__}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
