"""The inputs of a run: read from a file, or drawn from what the model says of itself."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ToolError
from .model_layout import Declared, layout_of

if TYPE_CHECKING:
    from ..export.cases.layout import Input

SIZES = re.compile(r"(?P<name>.+):(?P<dims>\d+(?:x\d+)*)")
# Free axes that no option names, in the order in which they appear: small, co-prime, batch first.
FREE = (2, 7, 11, 13, 17, 19)
# What is drawn is for a look at a model; real data comes from a file.
MAX_DRAWN_BYTES = 1 << 30
READERS = (".npz", ".npy", ".json")
# What numpy says of a file -> what it means.
REASONS = {
    "Object arrays": "it holds Python objects; save arrays of numbers",
    "pickled": "numpy doesn't know it; save it with numpy.savez or numpy.save",
}


def parse_sizes(options: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of ``NAME:DIMxDIM`` options by name.

    Raises
    ------
    ToolError
        If one isn't of that form, or a name comes twice.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for option in options:
        match = SIZES.fullmatch(option)
        if match is None:
            raise ToolError(f"--input {option!r} is not of the form NAME:DIMxDIM, for example src:2x7x64")
        if match["name"] in sizes:
            raise ToolError(f"--input names {match['name']!r} twice; give each input one shape")
        sizes[match["name"]] = tuple(map(int, match["dims"].split("x")))
    return sizes


def read_inputs(path: Path, session: Declared) -> dict[str, Any]:
    """Read arrays by input name.

    Parameters
    ----------
    path
        ``.npz`` with one array per input, ``.json`` with an object of nested lists, or ``.npy`` for a model with a
        single input. Whole numbers of a ``.json`` file take the type that the model declares.
    session
        The model.

    Raises
    ------
    ToolError
        If the file isn't there, can't be read, or holds something else than numbers.
    """
    if path.suffix not in READERS or not path.is_file():
        what = "a folder" if path.is_dir() else "no file" if not path.exists() else "no file of inputs"
        raise ToolError(f"{path} is {what}; give {', '.join(READERS[:-1])} or {READERS[-1]}")
    try:
        if path.suffix == ".json":
            found = json.loads(path.read_bytes())
        else:
            found = np.load(path, allow_pickle=False)
            found = found if isinstance(found, np.ndarray) else dict(found)
    except Exception as error:
        # numpy, zipfile, zlib and json each have errors of their own for a broken file.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        reason = next((meaning for said, meaning in REASONS.items() if said in reason), reason)
        raise ToolError(f"{path} can't be read: {reason}") from error
    if isinstance(found, np.ndarray):
        if len(session.input_names) != 1:
            raise ToolError(
                f"{path} holds one array, the model takes {', '.join(session.input_names)}; save them by name "
                "with numpy.savez"
            )
        return {session.input_names[0]: found}
    if not isinstance(found, dict):
        raise ToolError(f"{path} holds a {type(found).__name__}; give an object with one entry per input")
    if path.suffix == ".npz":
        return found
    dtypes = {declared.name: declared.element and declared.element.numpy for declared in session.inputs}
    return {name: _from_lists(name, value, dtypes.get(name)) for name, value in found.items()}


def _from_lists(name: str, value: Any, dtype: np.dtype[Any] | None) -> np.ndarray:
    try:
        array = np.array(value)
    except (ValueError, OverflowError) as error:
        raise ToolError(f"input {name!r} is no array of numbers: its lists have different lengths") from error
    if array.dtype.kind not in "biuf":
        raise ToolError(f"input {name!r} is no array of numbers: it holds text, objects or numbers of over 64 bits")
    if dtype is None or (array.dtype.kind == "f" and dtype.kind != "f"):
        return array
    cast = array.astype(dtype)
    if array.dtype.kind != "f" and not np.array_equal(cast, array):
        raise ToolError(f"input {name!r} holds values that {dtype} can't hold")
    return cast


def draw_inputs(session: Declared, sizes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Draw inputs of a model, by name.

    Parameters
    ----------
    session
        The model. Roles come from its ``maskport.io`` metadata, where it has some.
    sizes
        Shapes by input name. A size also holds for axes of the same name in other inputs; free axes that none
        names get 2, 7, 11, ...
    seed
        Of what is drawn: numbers with a fraction from the normal distribution, whole numbers 0 or 1, positions
        counted up, masks that hide nothing.

    Raises
    ------
    ToolError
        If a name isn't an input's, a rank differs, the inputs would be over 1 GiB, or a type can't be drawn.
    """
    nodes = {declared.name: declared for declared in session.inputs}
    if unknown := sizes.keys() - nodes.keys():
        raise ToolError(f"--input names {', '.join(sorted(unknown))}; the model's inputs are {', '.join(nodes)}")
    free: dict[str, int] = {}
    for name, shape in sizes.items():
        dims = nodes[name].shape
        if len(dims) != len(shape):
            raise ToolError(f"--input gives {name!r} {len(shape)} dimensions, the model takes {_dims(dims)}")
        free |= {dim: size for dim, size in zip(dims, shape, strict=True) if isinstance(dim, str)}
    left = iter(FREE)
    shapes = {}
    for name, node in nodes.items():
        for dim in node.shape:
            if isinstance(dim, str) and dim not in free:
                free[dim] = next(left, FREE[-1])
        shapes[name] = sizes.get(name) or tuple(
            dim if isinstance(dim, int) else free.get(dim or "", FREE[0]) for dim in node.shape
        )
    dtypes = {}
    for name, node in nodes.items():
        if node.element is None or node.element.numpy is None:
            raise ToolError(f"input {name!r} is a {node.type}, which can't be drawn; give --inputs FILE")
        dtypes[name] = node.element.numpy
    total = sum(math.prod(shapes[name]) * dtypes[name].itemsize for name in nodes)
    if total > MAX_DRAWN_BYTES:
        raise ToolError(f"the drawn inputs would be {total / 2**30:.1f} GiB, at most 1 is drawn; give --inputs FILE")
    layout = layout_of(session)
    rng = np.random.default_rng(seed)
    return {name: _draw(shapes[name], dtypes[name], layout.inputs.get(name), rng) for name in nodes}


def _draw(
    shape: tuple[int, ...], dtype: np.dtype[Any], described: Input | None, rng: np.random.Generator
) -> np.ndarray:
    role, pad = (described.role, described.pad) if described is not None else ("other", None)
    if role == "mask":
        return np.full(shape, 0 if pad else 1, dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if role == "positions" and shape:
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
    # Every table of embeddings has the entries 0 and 1, and nearly every one 2.
    return rng.choice([value for value in (0, 1, 2) if value != pad][:2], shape).astype(dtype)


def _dims(dims: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, dims))}]"
