"""What a model is made for: a provider, on CUDA the device's architecture, and an element type."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ARCHITECTURES", "PROVIDER_TYPES", "Target", "TargetError"]

# What ONNX Runtime's CUDA package carries code for; it has no PTX for others.
ARCHITECTURES = (75, 80, 86, 89, 90, 120)
PROVIDER_TYPES = {"cpu": ("float32", "float16"), "cuda": ("float32", "float16", "bfloat16")}
# From here on attention kernels exist for it.
BFLOAT16_SM = 80


class TargetError(ValueError):
    """A target that doesn't exist, or an element type that it doesn't run."""


@dataclass(frozen=True)
class Target:
    """A provider of ONNX Runtime and what runs there.

    Attributes
    ----------
    provider : str
        "cpu" or "cuda".
    sm : int or None
        Compute capability times ten; None is any from 75 on.
    dtype : str or None
        Element type that the model will have; None leaves it as it is.
    """

    provider: str
    sm: int | None = None
    dtype: str | None = None

    @classmethod
    def parse(cls, text: str, dtype: str | None = None) -> Target:
        """Read a target as the command line writes it.

        Parameters
        ----------
        text : str
            "cpu", "cuda" (what runs on every sm from 75 on) or "cuda:sm75" and so on.
        dtype : str, optional
            "float32", "float16", or on CUDA "bfloat16".

        Raises
        ------
        TargetError
            If there is no such target, or it doesn't run that type.

        Examples
        --------
        >>> Target.parse("cuda:sm90", "float16")
        Target(provider='cuda', sm=90, dtype='float16')
        """
        match = re.fullmatch(r"(cpu|cuda)(?::sm(\d+))?", text)
        provider, sm = match.groups() if match else ("", None)
        known = ("cpu", "cuda", *(f"cuda:sm{number}" for number in ARCHITECTURES))
        if text not in known:
            raise TargetError(f"there is no target {text!r}; give one of {', '.join(known)}")
        target = cls(provider, None if sm is None else int(sm), dtype)
        if dtype is not None and dtype not in PROVIDER_TYPES[provider]:
            raise TargetError(
                f"ONNX Runtime runs {', '.join(PROVIDER_TYPES[provider])} on {provider.upper()}, not {dtype!r}"
            )
        if dtype == "bfloat16" and target.lowest_sm < BFLOAT16_SM:
            raise TargetError(
                f"bfloat16 needs sm{BFLOAT16_SM} or later, which {text!r} doesn't promise; give a target from "
                f"cuda:sm{BFLOAT16_SM} on, or float16"
            )
        return target

    @property
    def lowest_sm(self) -> int:
        """The architecture of which everything must run: the target's own, or the oldest."""
        return self.sm or ARCHITECTURES[0]

    def __str__(self) -> str:
        return self.provider if self.sm is None else f"{self.provider}:sm{self.sm}"
