"""Executable twins: ONNX Runtime's own operators in numpy, so that what only CUDA runs is checked on any machine.

    >>> outputs = evaluate("packed.onnx", {"input_ids": ids, "attention_mask": mask})

A twin computes what the operator's documentation says, in float32 (float64 where it is given float64), and rounds once
to the element type, bfloat16 included. What has no single meaning, because ONNX Runtime's kernels differ or the
documentation is silent, it refuses; where the documentation is clear and a kernel departs from it, it warns with
:class:`KernelsDisagree`.

evaluate        a model run by onnx.reference with the twins; what neither of them runs
twin            what every twin has in common; attend, heads, key_mask, rotate, normalize what several need
in_float32      operators of onnx.reference that would round at every step
the others      one operator each, named for it
"""

from __future__ import annotations

from .evaluate import TWINS, evaluate, evaluator, lacking
from .twin import KernelsDisagree, Twin

__all__ = ["TWINS", "KernelsDisagree", "Twin", "evaluate", "evaluator", "lacking"]
