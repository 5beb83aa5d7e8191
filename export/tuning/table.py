"""The table of costs that is shipped: every kernel in the attention that it is for, at a few batches and lengths."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import onnx_ir as ir

from ...models.masks import Mask
from ..lowering.canonical import ATTENTION, DOMAIN, FIXED_INPUTS, Site
from ..lowering.costs import provider_of
from ..lowering.kernels import DECOMPOSED, KERNELS, Kernel
from ..lowering.targets import Target
from .kept import machine
from .one_site import AXES
from .site_costs import measured
from .workload import Workload

__all__ = ["CLASSES", "measure_table"]

CLASSES = ((1, 32), (64, 32), (16, 128), (8, 256), (2, 1024))
HEADS, HEAD_SIZE = 12, 64
DTYPES = ("float32", "float16")
OPSET = 24
# By window and rest, a mask that a kernel is made for.
WINDOWS = {"none": "", "any": "", "causal": "causal", "local": "window(7, 0)"}
RESTS = {"none": "", "lengths": "prefix(n)", **dict.fromkeys(("key mask", "bool", "bias", "any"), "padding(m)")}
(DENSE,) = (kernel for kernel in KERNELS if kernel.name == DECOMPOSED)
# A second measurement differs by about as much: what is this close in the same attention costs the same.
STEP = 0.05


class _Case(NamedTuple):
    """An attention that kernels are compared in."""

    mask: str
    bias: bool

    @classmethod
    def of(cls, kernel: Kernel) -> _Case:
        parts = [part for part in (WINDOWS[kernel.window], RESTS[kernel.rest]) if part]
        return cls(" & ".join(parts) or "full", kernel.own_bias)

    def model(self, batch: int, length: int) -> ir.Model:
        """Return a model of one canonical node; batch and length are fixed, which some kernels need."""
        mask, size = Mask.parse(self.mask), HEADS * HEAD_SIZE
        lengths = {"b": batch, "h": HEADS, "q": length, "n": length, "k": length}
        floats = {name: [lengths.get(str(axis), size) for axis in AXES[name]] for name in ("query", "key", "value")}
        if self.bias:
            floats["bias"] = [1, HEADS, length, length]
        inputs = {name: ir.val(name, ir.DataType.FLOAT, shape) for name, shape in floats.items()}
        for name, spec in mask.tensors.items():
            inputs[name] = ir.val(name, ir.DataType.INT64, [lengths[axis] for axis in spec.dims])
        described = Site(
            "site", DECOMPOSED, mask, tuple(mask.tensors), HEADS, HEADS, HEAD_SIZE, HEAD_SIZE,
            HEAD_SIZE**-0.5, 0.0, "mean", cross=False,
        )  # fmt: skip
        operands = [inputs.get(name) for name in (*FIXED_INPUTS, *mask.tensors)]
        node = ir.node(ATTENTION, operands, described.attributes(), domain=DOMAIN)
        (output,) = node.outputs
        output.name, output.dtype, output.shape = "result", ir.DataType.FLOAT, inputs["query"].shape
        imports = {"": OPSET, DOMAIN: 1}
        graph = ir.Graph(list(inputs.values()), [output], nodes=[node], opset_imports=imports, name="site")
        return ir.Model(graph, ir_version=10)


def measure_table(
    seconds: float = 0.2, passes: int = 1, threads: int = 1, on_step: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Measure the CPU's costs on this machine.

    Parameters
    ----------
    seconds : float
        For each attention, class and element type; five rounds are run at least.
    passes : int
        How often all is measured; the median counts.
    threads : int
        1 takes the time of the thread itself, which what else the machine does hardly changes; 0 is all cores.
    on_step : callable, optional
        Is told what is measured next.

    Returns
    -------
    dict
        What `Costs.load` reads: times relative to decomposed attention with a mask of padding, in steps of 0.05.
    """
    cases: dict[_Case, list[str]] = {}
    for kernel in KERNELS:
        # A channel is for CUDA, where heads are widened anyhow.
        if kernel.window in WINDOWS and kernel.rest in RESTS:
            cases.setdefault(_Case.of(kernel), []).append(kernel.name)
    ratios: dict[tuple[str, str, int], list[float]] = {}
    for number in range(passes):
        for dtype in DTYPES:
            target = Target.parse("cpu", dtype)
            for column, shape in enumerate(CLASSES):
                times: dict[_Case, dict[str, float]] = {}
                for case, names in cases.items():
                    if on_step is not None:
                        on_step(f"Pass {number + 1}: {dtype}, {shape[0]}x{shape[1]}, {case.mask}")
                    model, workload = case.model(*shape), Workload((shape,), seconds=seconds)
                    kernels = [*names, DECOMPOSED] if case.bias else names
                    seconds_of = measured(model.graph[0], model, target, "any", (), workload, kernels, threads)
                    (times[case],) = seconds_of.values()
                for case, names in cases.items():
                    # A bias costs time of its own.
                    base = times[case if case.bias else _Case.of(DENSE)][DECOMPOSED]
                    for name in names:
                        if name in times[case]:
                            key = (provider_of(target, dtype), name, column)
                            ratios.setdefault(key, []).append(times[case][name] / base)
    table: dict[str, Any] = {"machine": {**machine(), "threads": threads}}
    table["classes"] = [list(shape) for shape in CLASSES]
    for provider in dict.fromkeys(provider for provider, _, _ in ratios):
        columns: dict[str, list[float]] = {}
        for names in cases.values():
            for column in range(len(CLASSES)):
                found = {name: ratios[key] for name in names if (key := (provider, name, column)) in ratios}
                for name, step in _stepped(found).items():
                    columns.setdefault(name, []).append(step)
        table[provider] = _dense_last(columns)
    return table


def _stepped(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the costs of the kernels of one attention, in steps."""
    steps = {name: round(statistics.median(ratios) / STEP) for name, ratios in found.items()}
    least = min(steps.values(), default=0)
    close = {name for name, step in steps.items() if step - least <= 1 and name != DECOMPOSED}
    return {name: round((least if name in close else step) * STEP, 2) for name, step in steps.items()}


def _dense_last(columns: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return costs by which no operator is given a dense mask where it can be told the mask otherwise.

    Both take about as long, and a dense mask takes memory that grows with the square of the length.
    """
    costs = dict(columns)
    for kernel in KERNELS:
        if kernel.dense and kernel.name != DECOMPOSED and kernel.name in columns:
            others = [
                other.name
                for other in KERNELS
                if other.operator == kernel.operator
                and other.name in columns
                and not other.dense
                # A bool mask takes no bias.
                and not (other.own_bias and kernel.rest == "bool")
            ]
            costs[kernel.name] = [
                max(found) for found in zip(*(columns[k] for k in (kernel.name, *others)), strict=True)
            ]
    return costs
