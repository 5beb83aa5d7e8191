"""Tiny ONNX models that mix the tokens of a row under a mask, right and wrong: each wrong one has one fault."""

from __future__ import annotations

import json

import onnx
import onnx.parser

# Every token gets the mean of the tokens that the mask keeps.
MEAN = """
<ir_version: 10, opset_import: ["" : 20]>
mean (float[batch, seq, 4] src, int64[batch, seq] attention_mask) => (float[batch, seq, 4] output)
<int64[1] one = {1}, int64[1] two = {2}, float least = {1}>
{
    mask = Cast <to = 1> (attention_mask)
    keep = Unsqueeze (mask, two)
    kept = Mul (src, keep)
    total = ReduceSum (kept, one)
    found = ReduceSum (keep, one)
    count = Max (found, least)
    mean = Div (total, count)
    output = Add (src, mean)
}
"""
KEEP = "keep = Unsqueeze (mask, two)"
OUTPUT = "output = Add (src, mean)"
# By the name of its fault: what is replaced, and by what.
FAULTS = {
    "dropped": (KEEP, "ones = Unsqueeze (mask, two)\n always = Mul (ones, zero)\n keep = Add (always, least)"),
    "right padding": (
        KEEP,
        """length = ReduceSum (mask, one)
           ones = Mul (mask, zero)
           all = Add (ones, least)
           counted = CumSum (all, one_scalar)
           inside = LessOrEqual (counted, length)
           prefix = Cast <to = 1> (inside)
           keep = Unsqueeze (prefix, two)""",
    ),
    "empty rows": ("count = Max (found, least)", "count = Identity (found)"),
    "nan padding": (OUTPUT, "sum = Add (src, mean)\n hole = Div (sum, keep)\n output = Mul (hole, keep)"),
    "other padding": (OUTPUT, "sum = Add (src, mean)\n output = Mul (sum, keep)"),
    "baked length": (OUTPUT, "sum = Add (src, mean)\n output = Reshape (sum, five)"),
    "cut": (OUTPUT, "sum = Add (src, mean)\n output = Slice (sum, zeros, one, one)"),
    "always nan": (OUTPUT, "sum = Add (src, mean)\n output = Add (sum, nan)"),
    "infinite": (OUTPUT, "sum = Add (src, mean)\n output = Div (sum, zero)"),
    "half": ("(float[batch, seq, 4] output)", "(float16[batch, seq, 4] output)"),
}
CONSTANTS = ", float zero = {0}, int64 one_scalar = {1}, int64[3] five = {1, 5, 4}, int64[1] zeros = {0}>"
IO = {
    "version": 1,
    "inputs": {
        "src": {"role": "tokens", "axes": ["batch", "seq", 4]},
        "attention_mask": {"role": "mask", "axes": ["batch", "seq"], "pad": 0},
    },
    "outputs": {"output": {"axes": ["batch", "seq", 4]}},
}


def tiny(fault: str | None = None, *, metadata: bool = True) -> bytes:
    """Return the model, or one with a fault, as bytes."""
    text = MEAN
    if fault is not None:
        old, new = FAULTS[fault]
        assert old in text
        text = text.replace(old, new).replace(", float least = {1}>", ", float least = {1}" + CONSTANTS)
    if fault == "half":
        text = text.replace(OUTPUT, "sum = Add (src, mean)\n output = Cast <to = 10> (sum)")
    if fault == "always nan":
        text = text.replace("sum = Add (src, mean)", "sum = Add (src, mean)\n nan = Div (zero, zero)")
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    if metadata:
        onnx.helper.set_model_props(model, {"maskport.io": json.dumps(IO)})
    return model.SerializeToString()
