"""Why an attention did not get Flash or cuDNN: facts about ONNX Runtime's choice, the first that holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

BEST = ("flash", "cudnn")
FLASH_SM = 80
FUSED_KEY_MASK = "a key mask of lengths reaches TensorRT's fused kernels up to sm 89 and cuDNN from sm 90 on"


@dataclass(frozen=True)
class Chosen:
    """What is known of an attention that has its kernel.

    Attributes
    ----------
    op_type, domain
        The operator; the domain of ONNX itself is empty.
    given
        Places of the optional inputs that the node has.
    launched
        Full names of its kernels.
    sm
        Compute capability, times ten.
    """

    op_type: str
    domain: str
    given: Collection[int]
    launched: Collection[str]
    sm: int

    def operator(self, op_type: str, domain: str = "com.microsoft") -> bool:
        """Say whether it is this operator."""
        return (self.op_type, self.domain) == (op_type, domain)

    @property
    def half(self) -> bool:
        """Whether its kernels are of a half precision."""
        return any(re.search(r"half|bfloat16|fp16|bf16", name) for name in self.launched)


REASONS: tuple[tuple[Callable[[Chosen], bool], str], ...] = (
    (lambda c: c.op_type.endswith("Softmax"), "its products and its Softmax are operators of their own"),
    (lambda c: c.operator("Attention", "") and 3 in c.given, "an attn_mask rules out Flash and cuDNN"),
    (lambda c: c.operator("GroupQueryAttention") and 10 in c.given, "a bias goes to the unfused kernel"),
    (
        lambda c: c.operator("MultiHeadAttention") and 5 in c.given,
        "a bias rules out Flash; cuDNN takes it from sm 90 on",
    ),
    (lambda c: c.operator("MultiHeadAttention") and 4 in c.given, f"a key mask rules out Flash; {FUSED_KEY_MASK}"),
    (lambda c: c.operator("Attention") and 3 in c.given, f"a mask rules out Flash; {FUSED_KEY_MASK}"),
    (lambda c: c.sm < FLASH_SM, f"Flash needs sm {FLASH_SM} or later"),
    (lambda c: not c.half, "Flash and cuDNN take half precisions only"),
)


def why_not(kernel: str, chosen: Chosen) -> str | None:
    """Return why a better kernel was not chosen; None if there is none, or no fact in the table tells."""
    if kernel in BEST:
        return None
    return next((text for holds, text in REASONS if holds(chosen)), None)
