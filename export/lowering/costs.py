"""What a kernel costs, relative to decomposed attention: measured, and replaceable by what is measured elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .targets import Target

__all__ = ["COSTS", "TYPICAL", "CostError", "Costs", "provider_of"]

# Batch and length where the graph leaves them open.
TYPICAL = (8, 256)


class CostError(ValueError):
    """A file that is no table of costs."""


@dataclass(frozen=True)
class Costs:
    """A table of costs.

    Attributes
    ----------
    classes : sequence of (int, int)
        Batch and length of each column.
    costs : mapping
        By provider ("cpu", "cuda:sm75", ...) and kernel: time relative to decomposed attention, one number for each
        class, or one for all. "cpu:float16" is another column of "cpu", which stands in for element types without one.
    measured : mapping
        By attention and kernel: time relative to the fastest, measured for that attention; it decides before `costs`.
    shapes : str
        At which batches and lengths that was.
    """

    classes: Sequence[tuple[int, int]]
    costs: Mapping[str, Mapping[str, Sequence[float] | float]]
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shapes: str = ""

    def cost(self, kernel: str, provider: str, batch: int, length: int) -> float:
        """Return the cost of a kernel in the class nearest to a batch and length; infinite if it was not measured."""
        column = self.costs.get(provider) or self.costs.get(provider.partition(":")[0], {})
        found = column.get(kernel, math.inf)
        if not isinstance(found, Sequence):
            return found
        distances = [abs(math.log(batch / b)) + abs(math.log(length / n)) for b, n in self.classes]
        return found[distances.index(min(distances))]

    @classmethod
    def load(cls, path: Path) -> Costs:
        """Read a table: ``{"classes": [[8, 256]], "cpu": {"ai.onnx.Attention": [0.6]}}``; ``machine`` says of which.

        Raises
        ------
        CostError
            If it is no such file.
        """
        try:
            table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            classes = [(int(batch), int(length)) for batch, length in table.pop("classes")]
            table.pop("machine", None)
            costs = {
                provider: {kernel: _numbers(given, len(classes)) for kernel, given in kernels.items()}
                for provider, kernels in table.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CostError(
                f'{path} is no table of costs: {error}; expected {{"classes": [[batch, length], ...], provider: '
                "{kernel: [one number for each class]}}"
            ) from error
        return cls(classes, costs)


def _numbers(given: Any, count: int) -> list[float]:
    numbers = [float(number) for number in given]
    if len(numbers) != count:
        raise ValueError(f"expected {count} numbers, got {numbers}")
    return numbers


def provider_of(target: Target, dtype: str = "float32") -> str:
    """Return the column of a target: on CUDA the newest architecture measured that is not newer than it."""
    if target.provider == "cpu":
        return "cpu" if dtype == "float32" else f"cpu:{dtype}"
    # What is written for all of them is chosen for those in use.
    return "cuda:sm75" if target.sm == 75 else "cuda:sm80" if target.sm is None or target.sm < 90 else "cuda:sm90"


ATTENTION, MULTI_HEAD, GROUP_QUERY = (
    "ai.onnx.Attention",
    "com.microsoft.MultiHeadAttention",
    "com.microsoft.GroupQueryAttention",
)
# The CPU's: 12 heads of 64, by `python -m maskport.tools.autotune --write-table`.
_MEASURED = Costs.load(Path(__file__).with_name("costs.json"))
COSTS = Costs(
    _MEASURED.classes,
    {
        **_MEASURED.costs,
        # In launches of one float16 node, by which kernel they are: 1 flash or cuDNN, 2 memory-efficient, 8 unfused.
        # Widening heads for a channel adds to them, and so does the memory of a dense mask, which grows with the square
        # of the length. They are read from traces of a device that runs nothing: an order, not times.
        "cuda:sm75": {
            ATTENTION: 2.0,
            f"{ATTENTION} causal": 2.0,
            f"{ATTENTION} lengths": 3.0,
            f"{ATTENTION} channel": 2.6,
            f"{ATTENTION} causal & channel": 2.6,
            f"{ATTENTION} bool": 5.0,
            f"{ATTENTION} bias": 4.2,
            f"{ATTENTION} own bias": 3.2,
            f"{ATTENTION} causal & own bias": 3.2,
            f"{ATTENTION} channel & own bias": 3.8,
            f"{ATTENTION} causal & channel & own bias": 3.8,
            MULTI_HEAD: 2.1,
            f"{MULTI_HEAD} causal": 2.1,
            f"{MULTI_HEAD} key mask": 8.0,
            f"{MULTI_HEAD} causal & key mask": 8.0,
            f"{MULTI_HEAD} bias": 4.0,
            f"{GROUP_QUERY} causal": 3.0,
            f"{GROUP_QUERY} local": 3.0,
            f"{GROUP_QUERY} causal & channel": 3.6,
            f"{GROUP_QUERY} local & channel": 3.6,
            "decomposed": 9.0,
        },
        **{
            f"cuda:sm{sm}": {
                ATTENTION: 1.0,
                f"{ATTENTION} causal": 1.0,
                f"{ATTENTION} lengths": 1.2,
                f"{ATTENTION} channel": 1.6,
                f"{ATTENTION} causal & channel": 1.6,
                f"{ATTENTION} bool": 4.0,
                f"{ATTENTION} bias": 3.2,
                f"{ATTENTION} own bias": 2.2,
                f"{ATTENTION} causal & own bias": 2.2,
                f"{ATTENTION} channel & own bias": 2.8,
                f"{ATTENTION} causal & channel & own bias": 2.8,
                MULTI_HEAD: 1.1,
                f"{MULTI_HEAD} causal": 1.1,
                f"{MULTI_HEAD} key mask": 8.0,
                f"{MULTI_HEAD} causal & key mask": 8.0,
                f"{MULTI_HEAD} bias": bias,
                f"{GROUP_QUERY} causal": 1.3,
                f"{GROUP_QUERY} local": 1.3,
                f"{GROUP_QUERY} causal & channel": 1.9,
                f"{GROUP_QUERY} local & channel": 1.9,
                "decomposed": 9.0,
            }
            for sm, bias in ((80, 3.0), (90, 2.5))
        },
    },
)
