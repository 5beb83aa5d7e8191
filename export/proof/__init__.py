"""The optimizer's proof of its own work: a source and what was made of it, run side by side before anything is written.

prove     the order of it all; runs: each case, on all sides
candidate the result, and what it was before it was converted to a coarser type
side      a model that is ready to run: by ONNX Runtime, or by the executable twins of what the CPU lacks
by_row    a source that fails at any batch above 1
interface inputs and outputs of a file: its metadata, else its masks, its graph and a trial run
ids       how large the ids of an input may be; examples: what values its inputs take
plan      which sizes and padding patterns are run, within the work that a model of its size allows
granted   the patterns that are left under the assumptions that a result makes
compare   valid rows, padding rows and rows without a key, each by its own rule
pooled    rows of outputs without a token axis that read padding in the source itself
record    what was run and found, for people and for the file's metadata
"""

from __future__ import annotations

from .prove import prove
from .record import Proof

__all__ = ["Proof", "prove"]
