"""What a model is tried with, and how two runs are compared: by `export`'s check and by `validate`. Needs no torch.

layout    the inputs and outputs, by roles and axes
patterns  where padding lies
structures  segments, prefixes and adjacency
draw      inputs at other sizes, with every pattern
rows      which rows of an output are valid, padding, or without a key
parity    differences by kind of row, and what is allowed
"""
