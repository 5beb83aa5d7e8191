"""What the kernels that take an attention cost here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import onnx_ir as ir

from ..errors import first_line
from ..lowering.costs import Costs, provider_of
from ..lowering.kernels import KERNELS
from ..lowering.lower import lower
from ..lowering.targets import Target
from ..passes import clean
from ..precision import to_precision
from .answer import Seconds
from .one_site import alone, feeds_of
from .stopwatch import interleaved, loaded
from .workload import Workload

__all__ = ["lowered_by", "measured", "relative"]

EVERY = tuple(known.name for known in KERNELS)
# What is this close is alike: measured again, the order may be another.
NOISE = 1.03


def lowered_by(
    node: ir.Node, model: ir.Model, target: Target, padding_rows: str, assume: Collection[str], kernel: str
) -> ir.Model | None:
    """Return a model of one node, lowered to a kernel that is named; None if it doesn't take the node."""
    one = alone(node, model)
    costs = Costs(((1, 1),), {provider_of(target): {kernel: [0.0]}})
    done = lower(one, target, padding_rows=padding_rows, assume=assume, costs=costs)
    if any(kernel in site.refused for site in done):
        return None
    if target.dtype == "float16":
        one = to_precision(one, target.dtype)
    clean(one)
    return one


def measured(
    node: ir.Node,
    model: ir.Model,
    target: Target,
    padding_rows: str,
    assume: Collection[str],
    workload: Workload,
    kernels: Iterable[str] = EVERY,
    threads: int = 0,
) -> Seconds:
    """Return the seconds of each kernel that takes a node, at each shape of a workload.

    Raises
    ------
    RuntimeError
        If ONNX Runtime can't run one of them.
    """
    found = {name: lowered_by(node, model, target, padding_rows, assume, name) for name in kernels}
    seconds: Seconds = {}
    try:
        sessions = {name: loaded(one, threads) for name, one in found.items() if one is not None}
        for batch, length in workload.shapes:
            feeds = feeds_of(alone(node, model), workload, batch, length)
            seconds[f"{batch}x{length}"] = interleaved(sessions, feeds, workload.seconds, threads)
    except Exception as error:  # Its errors have no common class but this.
        raise RuntimeError(first_line(error)) from error
    return seconds


def relative(seconds: Seconds) -> dict[str, float]:
    """Return how many times the fastest's time each candidate takes, over all shapes; 1 for what is about as fast."""
    names = next(iter(seconds.values()), {})
    means = {name: math.exp(sum(math.log(times[name]) for times in seconds.values()) / len(seconds)) for name in names}
    ratios = {name: mean / min(means.values()) for name, mean in means.items()}
    return {name: 1.0 if ratio < NOISE else ratio for name, ratio in ratios.items()}
