"""Small models whose shapes or branches depend on the values of a mask."""

from __future__ import annotations

import numpy as np
import onnx.parser

HEAD = '<ir_version: 10, opset_import: ["" : 18, "com.microsoft": 1]>\n'
PLAIN = """
plain (float16[batch, seq, 8] x) => (float16[batch, seq, 8] y) {
  a = Relu (x)
  y = Neg (a)
}"""
PACKED = """
packed (float16[batch, seq, 8] x, int64[batch, seq] attention_mask, float16[8, 8] w) => (float16[n, 8] y)
<int64[1] all = {-1}, int64[2] rows = {-1, 8}, int64[1] zero = {0}> {
  flat = Reshape (attention_mask, all)
  real = Cast <to = 9> (flat)
  places = NonZero (real)
  index = Squeeze (places, zero)
  tokens = Reshape (x, rows)
  kept = Gather (tokens, index)
  y = MatMul (kept, w)
}"""
COMPRESSED = """
compressed (float16[batch, seq, 8] x, int64[batch, seq] attention_mask) => (float16[n, 8] y)
<int64[1] all = {-1}, int64[2] rows = {-1, 8}> {
  flat = Reshape (attention_mask, all)
  real = Cast <to = 9> (flat)
  tokens = Reshape (x, rows)
  kept = Compress <axis = 0> (tokens, real)
  y = Relu (kept)
}"""
UNPADDED = """
unpadded (float16[batch, seq, 8] x, int64[batch, seq] attention_mask) => (float16[n, 8] y, float16[batch, seq, 8] z)
<int64[1] one = {1}> {
  lengths = ReduceSum <keepdims = 0> (attention_mask, one)
  counts = Cast <to = 6> (lengths)
  y, offset, cumulated, longest = com.microsoft.RemovePadding (x, counts)
  r = Relu (y)
  z = com.microsoft.RestorePadding (r, offset)
}"""
CUT = """
cut (float16[batch, seq, 8] x, int64[batch, seq] attention_mask) => (float16[batch, n, 8] y)
<int64[1] one = {1}, int64[1] zero = {0}> {
  lengths = ReduceSum <keepdims = 0> (attention_mask, one)
  longest = ReduceMax <keepdims = 1> (lengths)
  y = Slice (x, zero, longest, one)
}"""
# The second count depends on the first: tokens are kept whose number among the kept ones is even.
TWICE = """
twice (float16[batch, seq, 8] x, int64[batch, seq] attention_mask) => (float16[n, 8] y)
<int64[1] all = {-1}, int64[2] rows = {-1, 8}, int64[1] first = {0}, int64 zero = {0}, int64 one = {1},
 int64 two = {2}> {
  flat = Reshape (attention_mask, all)
  real = Cast <to = 9> (flat)
  places = NonZero (real)
  index = Squeeze (places, first)
  shape = Shape (index)
  count = Squeeze (shape, first)
  numbers = Range (zero, count, one)
  parity = Mod (numbers, two)
  even = Equal (parity, zero)
  second = NonZero (even)
  again = Squeeze (second, first)
  tokens = Reshape (x, rows)
  kept = Gather (tokens, index)
  y = Gather (kept, again)
}"""
BRANCH = """
branch (float16[batch, seq, 8] x, int64[batch, seq] attention_mask) => (float16[batch, seq, 8] y) {
  least = ReduceMin <keepdims = 0> (attention_mask)
  all = Cast <to = 9> (least)
  y = If (all) <
    then_branch = full () => (float16[batch, seq, 8] a) { a = Relu (x) },
    else_branch = padded () => (float16[batch, seq, 8] b) { c = Neg (x) b = Relu (c) }
  >
}"""
# Whether a loop goes on is decided within its body. 18560 are the bits of 9.
LOOP = """
loop (float16[batch, seq, 8] x) => (float16[batch, seq, 8] y)
<int64 most = {3}, bool go = {1}, float16 limit = {18560}> {
  y = Loop (most, go, x) <
    body = step (int64 i, bool before, float16[batch, seq, 8] a) => (bool after, float16[batch, seq, 8] b) {
      b = Add (a, a)
      sum = ReduceSum <keepdims = 0> (b)
      after = Less (sum, limit)
    }
  >
}"""
# A loop within a branch, whose body counts each row's tokens.
ROWS = """
rows (float16[batch, seq, 8] x, int64[batch, seq] attention_mask) => (float16[batch, n, 8] y) {
  least = ReduceMin <keepdims = 0> (attention_mask)
  all = Cast <to = 9> (least)
  y = If (all) <
    then_branch = full () => (float16[batch, m, 8] a) { a = Relu (x) },
    else_branch = padded () => (float16[batch, k, 8] b) {
      shape = Shape (attention_mask)
      first = Constant <value = int64[1] {0}> ()
      one = Constant <value = int64[1] {1}> ()
      batch = Gather (shape, first)
      times = Squeeze (batch)
      go = Constant <value = bool {1}> ()
      b = Loop (times, go, x) <
        body = step (int64 i, bool before, float16[batch, n, 8] c) => (bool after, float16[batch, k, 8] d) {
          after = Identity (before)
          row = Unsqueeze (i, first)
          mask = Gather (attention_mask, row)
          count = ReduceSum <keepdims = 0> (mask, one)
          d = Slice (c, first, count, one)
        }
      >
    }
  >
}"""
# com.microsoft.BiasAdd runs on CUDA alone, and nothing else knows it.
UNKNOWN = """
unknown (float16[batch, seq, 320] x, float16[320] bias) => (float16[n, 320] y)
<int64[1] one = {1}, int64[1] zero = {0}> {
  a = com.microsoft.BiasAdd (x, bias, x)
  sum = ReduceSum <keepdims = 0> (a)
  count = Cast <to = 7> (sum)
  end = Unsqueeze (count, zero)
  b = Slice (a, zero, end, one)
  y = ReduceSum <keepdims = 0> (b, zero)
}"""
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
INPUTS = {"x": (2, 5, 8), "attention_mask": MASK}


def parse(text: str) -> bytes:
    return onnx.parser.parse_model(HEAD + text).SerializeToString()
