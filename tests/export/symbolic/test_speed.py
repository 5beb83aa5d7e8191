"""Inspecting takes seconds, and no more than in proportion to the layers."""

from __future__ import annotations

import time

import onnx
import onnx.parser
import pytest
from maskport.export import inspect
from maskport.models import Mask

COMMON = """
  zero = Constant<value_int=0>()
  one = Constant<value_int=1>()
  seven = Constant<value_int=7>()
  axis0 = Constant<value_ints=[0]>()
  axis1 = Constant<value_ints=[1]>()
  axis2 = Constant<value_ints=[2]>()
  key_axes = Constant<value_ints=[1,2]>()
  f0 = Constant<value_float=0.0>()
  low = Constant<value_float=-3.4028235e38>()
  scale = Constant<value_float=0.35355339>()
  split = Constant<value_ints=[0,0,4,8]>()
  merged = Constant<value_ints=[0,0,32]>()
  shape = Shape(x0)
  length = Slice(shape, axis1, axis2)
  scalar = Squeeze(length, axis0)
  positions = Range(zero, scalar, one)
  keys = Unsqueeze(positions, axis0)
  queries = Unsqueeze(positions, axis1)
"""
MASK = """
  key{n} = Unsqueeze(m, key_axes)
  b{n} = Cast<to=9>(key{n})
  d{n} = Sub(queries, keys)
  l{n} = LessOrEqual(d{n}, seven)
  g{n} = GreaterOrEqual(d{n}, zero)
  wn{n} = And(l{n}, g{n})
  at{n} = And(wn{n}, b{n})
  fill{n} = Where(at{n}, f0, low)
"""
LAYER = """
  h{n} = Reshape(x{n}, split)
  q{n} = Transpose<perm=[0,2,1,3]>(h{n})
  kt{n} = Transpose<perm=[0,2,3,1]>(h{n})
  raw{n} = MatMul(q{n}, kt{n})
  s{n} = Mul(raw{n}, scale)
  masked{n} = Add(s{n}, fill{mask})
  w{n} = Softmax<axis=-1>(masked{n})
  o{n} = MatMul(w{n}, q{n})
  t{n} = Transpose<perm=[0,2,1,3]>(o{n})
  j{n} = Reshape(t{n}, merged)
  x{next} = Add(x{n}, j{n})
"""


def model(layers: int, *, shared: bool) -> onnx.ModelProto:
    """Return a model of attention layers of 4 heads on [B, S, 32]; they share a mask, or each makes its own."""
    parts = [COMMON]
    for n in range(layers):
        if n == 0 or not shared:
            parts.append(MASK.format(n=n))
        parts.append(LAYER.format(n=n, next=n + 1, mask=0 if shared else n))
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        g (float[B,S,32] x0, int64[B,S] m) => (float[B,S,32] x{layers}) {{ {"".join(parts)} }}"""
    )


def seconds(layers: int, *, shared: bool) -> float:
    """Inspect a model of so many layers."""
    made = model(layers, shared=shared)
    start = time.perf_counter()
    report = inspect(made)
    elapsed = time.perf_counter() - start
    assert report.unlifted == ()
    assert [site.mask for site in report.sites] == [Mask.parse("window(7, 0) & padding(m)")] * layers
    assert all(site.verified for site in report.sites)
    return elapsed


@pytest.mark.parametrize("shared", [True, False], ids=["one mask", "a mask each"])
def test_layers_cost_no_more_than_in_proportion(shared: bool) -> None:
    seconds(2, shared=shared)
    of_12 = min(seconds(12, shared=shared) for _ in range(2))
    assert of_12 < 5
    # 100 layers are 8.3 times as many; twice that is a slow moment of the machine, squared would be 70.
    assert seconds(100, shared=shared) < 17 * max(of_12, 0.05)
