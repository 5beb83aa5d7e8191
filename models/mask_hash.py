"""A hash of what a mask means: its values at fixed points, on tensors made from their names."""

from __future__ import annotations

import functools
import zlib

import numpy as np

from .mask_leaves import Expr, evaluate
from .mask_rows import Affine

__all__ = ["fingerprint"]


class _Samples:
    """Fixed points with tensors made from their names: equal masks evaluate to equal bits (see Points)."""

    def __init__(self, count: int = 128) -> None:
        random = np.random.default_rng(20)
        span = 2 ** random.integers(0, 14, size=(5, count))
        self.q, self.k, self.past, before_k, after_q = random.integers(0, span)
        near = random.random(count) < 0.5
        self.k = np.where(near, np.maximum(self.q + self.past + before_k % 9 - 4, 0), self.k)
        self.p = self.q + self.past
        self.q_len = self.q + 1 + after_q
        self.k_len = np.maximum(self.k + 1, self.q_len + self.past) + before_k
        self.true = np.ones(count, bool)
        self.zero = np.zeros(count, np.int64)

    def load(self, name: str, axes: str) -> np.ndarray:
        mixed = self.zero + zlib.crc32(name.encode("utf-8", "surrogatepass"))
        for axis in axes[1:].replace("h", ""):
            mixed = (mixed * 48271 + getattr(self, axis) + 11) % (2**31 - 1)
        mixed = mixed * 48271 % (2**31 - 1) // 64
        return mixed % 2 == 1 if axes == "bhqk" else mixed % 4

    def row(self, affine: Affine) -> np.ndarray:
        value = self.zero + affine.const + affine.past * self.past
        value = value + affine.q_len * self.q_len + affine.k_len * self.k_len
        if affine.row is not None:
            value = value + zlib.crc32(affine.row.encode("utf-8", "surrogatepass")) % 64
        return value


@functools.lru_cache(maxsize=4096)
def fingerprint(expr: Expr) -> int:
    """Return a hash that is the same for all expressions that mean the same."""
    return int.from_bytes(np.packbits(evaluate(expr, _SAMPLES) & _SAMPLES.true).tobytes(), "big")


_SAMPLES = _Samples()
