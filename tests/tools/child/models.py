"""Small models that end the process, never end, or take all memory."""

from __future__ import annotations

import onnx.parser

HEAD = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
WEIGHTS = ", ".join(["0.1"] * 8 * 24)
# On the CPU ONNX Runtime 1.31.1 reads the bias that isn't there.
SEGFAULT = f"""g (float[batch, seq, 8] x) => (float[batch, seq, 8] y) <float[8, 24] w = {{{WEIGHTS}}}>
    {{ y = com.microsoft.Attention <num_heads = 2> (x, w) }}"""
# The lowest number divided by -1 is none that an int32 holds: the processor itself refuses, at this length alone.
AT_LENGTH = """g (float[batch, seq, 4] x) => (float[batch, seq, 4] y)
    <int64 axis = {1}, int64 above = {LENGTH}, int32 low = {-2147483648}>
    { shape = Shape (x)
      length = Gather (shape, axis)
      below = Sub (length, above)
      divisor = Cast <to = 6> (below)
      quotient = Div (low, divisor)
      number = Cast <to = 1> (quotient)
      zero = Sub (number, number)
      y = Add (x, zero) }"""
# Where constants are folded, it is computed when it is loaded.
AT_LOAD = """g (float[batch, seq, 4] x) => (float[batch, seq, 4] y)
    <int32[1] low = {-2147483648}, int32[1] minus = {-1}>
    { quotient = Div (low, minus)
      number = Cast <to = 1> (quotient)
      y = Add (x, number) }"""
ENDLESS = """g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) <int64 trips = {4000000000000000000}, bool go = {1}>
    { y = Loop (trips, go, x) <body = b (int64 i, bool on, float[batch, seq, 4] s)
        => (bool still, float[batch, seq, 4] t) { still = Identity (on) t = Identity (s) }> }"""
# 2 to the 50 numbers.
BOUNDLESS = """g (float[batch, seq, 4] x) => (float[a, b] y)
    <int64[2] sizes = {33554432, 33554432}, int64[1] all = {-1}, int64[1] none = {0}, int64[1] one = {1}>
    { flat = Reshape (x, all) first = Slice (flat, none, one) y = Expand (first, sizes) }"""


def model(text: str) -> bytes:
    """Return the bytes of a model in ONNX text."""
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


def crashes_at(length: int) -> bytes:
    """Return a model that ends the process with SIGFPE where a sequence has this length."""
    return model(AT_LENGTH.replace("LENGTH", str(length + 1)))
