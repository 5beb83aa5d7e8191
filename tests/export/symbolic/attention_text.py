"""Small attention graphs in ONNX text, of which a test writes what is between the scores and the Softmax."""

from __future__ import annotations

import onnx
import onnx.parser

# Heads and head size of queries, keys and values.
HEADS, SIZE = 4, 8

# What bodies may use: numbers, and positions of keys and queries, as [1, S] and [S, 1].
COMMON = """
  zero = Constant<value_int=0>()
  one = Constant<value_int=1>()
  two = Constant<value_int=2>()
  three = Constant<value_int=3>()
  seven = Constant<value_int=7>()
  axis0 = Constant<value_ints=[0]>()
  axis1 = Constant<value_ints=[1]>()
  axis2 = Constant<value_ints=[2]>()
  axis3 = Constant<value_ints=[3]>()
  key_axes = Constant<value_ints=[1,2]>()
  query_axes = Constant<value_ints=[1,3]>()
  f0 = Constant<value_float=0.0>()
  f1 = Constant<value_float=1.0>()
  f30 = Constant<value_float=30.0>()
  ten = Constant<value_float=-10.0>()
  low = Constant<value_float=-3.4028235e38>()
  inf = Constant<value_float=-inf>()
  shape = Shape(q)
  length = Slice(shape, axis2, axis3)
  square = Concat<axis=0>(length, length)
  scalar = Squeeze(length, axis0)
  positions = Range(zero, scalar, one)
  keys = Unsqueeze(positions, axis0)
  queries = Unsqueeze(positions, axis1)
  kt = Transpose<perm=[0,1,3,2]>(k)
  raw = MatMul(q, kt)
  scale = Constant<value_float=0.35355339>()
  s = Mul(raw, scale)
"""
WHERE = "masked = Where(c, s, inf)"
ADD = "added = Where(c, f0, inf)\n masked = Add(s, added)"


def attention(
    body: str, inputs: str = "int64[B,S] m", *, dtype: str = "float", after: str = "y = MatMul(w, v)", opset: int = 20
) -> onnx.ModelProto:
    """Return a model whose `body` computes `masked` from the scores `s`, or (where it ends in `c`) what is attended.

    Parameters
    ----------
    body : str
        Nodes. Without a `masked`, scores are filled with -inf where `c` is false.
    inputs : str
        Graph inputs beside `q`, `k` and `v`, which are [B, HEADS, S, SIZE].
    after : str
        Nodes from the weights `w` to the output `y`.
    """
    heads = f"{dtype}[B,{HEADS},S,{SIZE}]"
    masked = body if "masked =" in body else f"{body}\n {WHERE}"
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}]>
        g ({", ".join([f"{heads} q, {heads} k, {heads} v", *([inputs] if inputs else [])])}) => ({heads} y)
        {{ {COMMON}
          {masked}
          w = Softmax<axis=-1>(masked)
          {after}
        }}"""
    )
