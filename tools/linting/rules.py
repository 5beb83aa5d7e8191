"""All rules, by their codes."""

from __future__ import annotations

from .file import FILE
from .kernels import KERNELS
from .lengths import LENGTHS
from .masks import MASKS
from .numbers import NUMBERS
from .rule import Rule

__all__ = ["GROUPS", "RULES"]

# What the hundreds stand for.
GROUPS = {"MP1": "masks", "MP2": "lengths", "MP3": "numbers", "MP4": "runtime", "MP5": "file"}
RULES: dict[str, Rule] = {rule.code: rule for rule in (*MASKS, *LENGTHS, *NUMBERS, *KERNELS, *FILE)}
