"""How good the validation is: faults are planted in a right model, and what catches them is counted.

self_test  all faults that a model can have, and what caught each
mutations  the faults
plant      one attention, written anew with a fault in it
"""

from __future__ import annotations

from .self_test import Mutant, SelfTest, self_test

__all__ = ["Mutant", "SelfTest", "self_test"]
