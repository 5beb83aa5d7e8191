"""Small encoders in ONNX text: a test writes what is before and after the attention; and what they must give."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
from maskport.export import optimize
from maskport.export.optimized import Optimized
from maskport.export.twins import evaluator
from maskport.models import Mask

from ..lowering.canonical_models import padding

# Width of the tokens, heads, size of a head.
WIDTH, HEADS, SIZE = 16, 2, 8
PATTERNS = ("ones", "right", "left", "holes", "one", "none", "one empty row")
SIZES = ((3, 7), (1, 5), (2, 1), (5, 11))
# What another order of sums changes in float32, per unit of the largest value.
TOLERANCE = 1e-5

# What bodies may use. Positions of queries and keys are [S, 1] and [1, S].
COMMON = """
  i0 = Constant<value_int=0>()
  i1 = Constant<value_int=1>()
  a0 = Constant<value_ints=[0]>()
  a1 = Constant<value_ints=[1]>()
  a2 = Constant<value_ints=[2]>()
  a3 = Constant<value_ints=[3]>()
  last = Constant<value_ints=[-1]>()
  far = Constant<value_ints=[9223372036854775807]>()
  f0 = Constant<value_float=0.0>()
  f1 = Constant<value_float=1.0>()
  f2 = Constant<value_float=2.0>()
  scale = Constant<value_float=0.35355339>()
  low = Constant<value_float=-1e9>()
  split = Constant<value_ints=[0, 0, 2, 8]>()
  merge = Constant<value_ints=[0, 0, 16]>()
  rows = Constant<value_ints=[-1, 16]>()
  lengths = Shape(x)
  batch = Slice(lengths, a0, a1)
  length = Slice(lengths, a1, a2)
  count = Squeeze(length)
  places = Range(i0, count, i1)
  p = Unsqueeze(places, a1)
  k = Unsqueeze(places, a0)
  shown = Cast<to=9>(m)
  padded = Unsqueeze(shown, axes12)
  causal = GreaterOrEqual(p, k)
  distance = Sub(p, k)
"""


def attend(
    x: str, out: str, mask: str | None = "padded", *, keys: str | None = None, scores: str = "", weights: str = "w"
) -> str:
    """Return the nodes of an attention [B, S, WIDTH] of `x` by a mask [.., S, S] if any, with its residual sum.

    Parameters
    ----------
    keys : str, optional
        Where keys and values come from, if not from `x`.
    scores : str
        More nodes, from `{out}_s` to `{out}_t`.
    weights : str
        Names of the weights begin with it.
    """
    source = x if keys is None else keys
    heads = "".join(
        f"""
        {out}_{part}p = MatMul({of}, {weights}{part})
        {out}_{part}h = Reshape({out}_{part}p, split)
        {out}_{part} = Transpose<perm=[0,2,{"3,1" if part == "k" else "1,3"}]>({out}_{part}h)"""
        for part, of in (("q", x), ("k", source), ("v", source))
    )
    if not scores:
        scores = f"{out}_t = Identity({out}_s)"
    return f"""{heads}
        {out}_r = MatMul({out}_q, {out}_k)
        {out}_s = Mul({out}_r, scale)
        {scores}
        {out}_m = {"Identity(" if mask is None else f"Where({mask}, "}{out}_t{"" if mask is None else ", low"})
        {out}_w = Softmax<axis=-1>({out}_m)
        {out}_o = MatMul({out}_w, {out}_v)
        {out}_c = Transpose<perm=[0,2,1,3]>({out}_o)
        {out}_f = Reshape({out}_c, merge)
        {out}_p = MatMul({out}_f, {weights}o)
        {out} = Add({x}, {out}_p)"""


def model(
    after: str = "y = Identity(o)",
    *,
    before: str = "h = Identity(x)",
    attention: str | None = None,
    inputs: str = "",
    outputs: str = f"float[B,S,{WIDTH}] y",
    opset: int = 24,
    mask_type: str = "int64",
) -> onnx.ModelProto:
    """Return a model from tokens `x` [B, S, WIDTH] and a mask `m` [B, S].

    Parameters
    ----------
    after : str
        Nodes from `o`, the result of the attention, to the outputs.
    before : str
        Nodes from `x` to `h`, what the attention is over.
    attention : str, optional
        Nodes from `h` to `o`; attention of the real tokens by default.
    inputs, outputs : str
        More inputs, and all outputs.
    """
    body = f"{COMMON}\n{before}\n{attend('h', 'o') if attention is None else attention}\n{after}"
    more = f", {inputs}" if inputs else ""
    made = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>
        g (float[B,S,{WIDTH}] x, {mask_type}[B,S] m{more}) => ({outputs}) {{ {body} }}"""
    )
    used = {name for node in made.graph.node for name in node.input}
    for name, array in _weights().items():
        if name in used:
            made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.checker.check_model(made)
    return made


def _weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.4).astype(np.float32)

    matrices = {f"{layer}{part}": normal(WIDTH, WIDTH) for layer in ("w", "u") for part in "qkvo"}
    return {
        **matrices,
        "axes12": np.array([1, 2], np.int64),
        "vector": normal(WIDTH),
        "matrix": normal(WIDTH, WIDTH),
        "cube": normal(HEADS, SIZE, SIZE),
        "kernel": normal(WIDTH, WIDTH, 3),
        "turns": normal(64, SIZE // 2),
    }


def feeds(
    made: onnx.ModelProto | ir.Model, batch: int, length: int, pattern: str, seed: int = 0
) -> dict[str, np.ndarray]:
    """Draw the inputs of a model: a mask [B, S] after a pattern, other integers from 0 to 2."""
    random = np.random.default_rng([seed, batch, length])
    proto = made if isinstance(made, onnx.ModelProto) else ir.to_proto(made)
    found = {}
    for value in proto.graph.input:
        dims = [d.dim_value or {"B": batch, "S": length}.get(d.dim_param, 3) for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name == "m":
            array: Any = masked(pattern, batch, length, random)
        elif dtype.kind in "iu":
            array = random.integers(0, 3, dims)
        elif dtype.kind == "b":
            array = random.random(dims) < 0.6
        else:
            array = random.standard_normal(dims)
        found[value.name] = np.asarray(array).astype(dtype)
    return found


def masked(pattern: str, batch: int, length: int, random: np.random.Generator) -> np.ndarray:
    """Return which tokens are real, int64 [B, S]."""
    if pattern != "one empty row":
        return padding(pattern, batch, length, random)
    made = padding("holes", batch, length, random)
    made[batch // 2] = 0
    return made


def made_by(source: onnx.ModelProto, target: str = "cpu", **options: Any) -> Optimized:
    """Optimize a model, without its own check: what it gives is compared here."""
    return optimize(source, target=target, check=False, **options)


def why_not(result: Optimized) -> str:
    """Return why tokens were not packed; empty if they were."""
    return "; ".join(note for note in result.notes if "are not packed" in note)


def operators(result: Optimized) -> list[str]:
    """Return the operators of a result, bodies of others included."""
    return [node.op_type for node in ir.traversal.RecursiveGraphIterator(result.model.graph)]


def agree(
    source: onnx.ModelProto,
    result: Optimized,
    sizes: Sequence[tuple[int, int]] = SIZES,
    *,
    patterns: Sequence[str] = PATTERNS,
    zero: Sequence[str] = (),
    tolerance: float = TOLERANCE,
) -> None:
    """Compare a result with its source at all sizes and patterns: rows of real tokens, and rows that have one.

    Parameters
    ----------
    zero : sequence of str
        Outputs [B, S, ...] whose padding must be zero.
    """
    before, after = runner(ir.from_proto(source)), runner(result.model)
    for batch, length in sizes:
        for pattern in patterns:
            given = feeds(source, batch, length, pattern)
            expected, actual = before(given), after(given)
            for name in expected:
                same(f"{batch}, {length}, {pattern}: {name}", given["m"], actual[name], expected[name], tolerance)
                if name in zero:
                    assert not actual[name][given["m"] == 0].any(), f"{batch}, {length}, {pattern}: {name}"


def runner(of: ir.Model) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Load a model once: in ONNX Runtime, or with the twins if it is for CUDA alone; it is given the types it takes."""
    proto = ir.to_proto(of)
    types = {str(value.name): value.dtype.numpy() for value in of.graph.inputs if value.dtype is not None}
    names = [str(value.name) for value in of.graph.outputs]
    if any(node.op_type == "PackedMultiHeadAttention" for node in of.graph):
        run = evaluator(proto).run
    else:
        onnx.checker.check_model(proto)
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        run = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run

    def of_feeds(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = run(None, {name: given[name].astype(dtype) for name, dtype in types.items()})
        return dict(zip(names, map(np.asarray, results), strict=True))

    return of_feeds


def same(what: str, mask: np.ndarray, actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Assert that an output is the source's where there are tokens, and finite elsewhere."""
    assert actual.shape == expected.shape, what
    assert actual.dtype == expected.dtype, what
    assert np.isfinite(actual).all(), what
    if expected.shape[:2] == mask.shape:
        rows: np.ndarray = mask != 0
    elif expected.shape[:2] == mask.T.shape and mask.shape[0] != mask.shape[1]:
        rows = mask.T != 0
    elif expected.shape[0] == mask.size:
        rows = mask.reshape(-1) != 0
    else:
        rows = (mask != 0).any(axis=1)
    agree_on(rows, expected, actual, tolerance, what)


def agree_on(
    rows: np.ndarray, expected: np.ndarray, actual: np.ndarray, tolerance: float = TOLERANCE, what: str = ""
) -> None:
    """Assert that the rows of two arrays are equal to rounding."""
    if rows.any():
        error = np.abs(actual[rows].astype(np.float64) - expected[rows]).max()
        assert error <= tolerance * max(1.0, np.abs(expected[rows]).max()), f"{what}: {error}"


def mask_model(
    mask: Mask, *, layers: int = 1, after: str = "y = Identity(o)", opset: int = 24, low: float = -1e9
) -> onnx.ModelProto:
    """Return a model whose attention has a mask; its tensors are inputs.

    Parameters
    ----------
    low : float
        What scores of keys that are not attended are set to.
    """
    names = {"q_len": "count", "k_len": "count", "past": "i0", "attend": "allowed"}
    inputs = []
    length = {"b": "B", "h": "1", "q": "S", "k": "S", "p": "S"}
    for name, spec in mask.tensors.items():
        names[name] = name
        if name != "m":
            kind = "bool" if spec.dims == "bhqk" else "int64"
            inputs.append(f"{kind}[{','.join(length[letter] for letter in spec.dims)}] {name}")
    names_of = ["h", *(f"o{n}" for n in range(layers))]
    drawn = "\n".join(
        attend(before, out, "allowed", weights="wu"[n % 2])
        for n, (before, out) in enumerate(itertools.pairwise(names_of))
    )
    attention = f"allowed = Identity(padded)\n {drawn}\n o = Identity({names_of[-1]})"
    made = model(after, attention=attention, inputs=", ".join(inputs), opset=opset)
    graph = mask.to_onnx(opset_version=opset).graph
    nodes = []
    for node in graph.node:
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        for values in (copied.input, copied.output):
            values[:] = [names.get(name, f"mask_{name}") if name else "" for name in values]
        nodes.append(copied)
    for array in graph.initializer:
        made.graph.initializer.add().CopyFrom(array)
        made.graph.initializer[-1].name = f"mask_{array.name}"
    kept = list(made.graph.node)
    place = next(place for place, node in enumerate(kept) if node.output[0] == "allowed")
    for node in kept:
        if node.output[0] == "low":
            node.attribute[0].f = low
    del made.graph.node[:]
    made.graph.node.extend([*kept[:place], *nodes, *kept[place + 1 :]])
    onnx.checker.check_model(made)
    return made
