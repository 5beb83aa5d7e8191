"""What a kernel's name tells: a short name, and the kind of attention."""

from __future__ import annotations

import re
from collections.abc import Iterable

# ONNX Runtime's own outer namespaces say nothing.
NAMESPACES = re.compile(r"\b(?:onnxruntime|contrib|cuda|\(anonymous namespace\))::")
# The arithmetic of an element-wise kernel is an argument of its template.
OPERATION = re.compile(r"\bOP_(\w+)|\b(_IsNan|_IsInf)\b")

# The kind of an attention kernel, by a part of its name; the first that one of a node's launches shows counts.
KINDS = (
    ("flash", r"\bflash::|flash_fwd|FlashAttn"),
    ("cudnn", r"^cudnnBackendExecute$"),
    ("memory_efficient", r"attention_kernel_batched_impl|AttentionKernel<|fmha_cutlass"),
    ("trt", r"^fmha_|^fused_multihead|_S_\d+_sm\d\d"),
    ("xqa", r"\bxqa|kernel_mha"),
    ("math", r"[Ss]oftmax"),
)
# Operators that are attention by themselves, whatever their domain.
OPERATORS = {
    "Attention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "PagedAttention",
    "LongformerAttention",
    "SparseAttention",
    "DecoderMaskedMultiHeadAttention",
    "DecoderMaskedSelfAttention",
    "MultiHeadAttentionV2",
    "QAttention",
    "QOrderedAttention",
    "LinearAttention",
}


def short_name(name: str) -> str:
    """Return a kernel's name without its type, template and arguments.

    The operation of an element-wise kernel, which is an argument of its template, is kept.

    >>> short_name("void onnxruntime::cuda::_UnaryElementWise<long, onnxruntime::cuda::OP_Cast<long> >(long const*)")
    '_UnaryElementWise<Cast>'
    """
    plain = NAMESPACES.sub("", name)
    outer = _without_brackets(plain)
    base = outer.partition("(")[0].strip().rpartition(" ")[2]
    operation = OPERATION.search(plain)
    return f"{base}<{(operation[1] or operation[2]).lstrip('_')}>" if operation and "lementWise" in base else base


def attention_kind(names: Iterable[str]) -> str:
    """Return the kind of attention among a node's kernels and library calls, ``"none"`` if there is none."""
    launched = list(names)
    for kind, pattern in KINDS:
        if any(re.search(pattern, name) for name in launched):
            return kind
    return "none"


def _without_brackets(text: str) -> str:
    kept, depth = [], 0
    for character in text:
        depth += character == "<"
        if not depth:
            kept.append(character)
        depth -= character == ">"
    return "".join(kept)
