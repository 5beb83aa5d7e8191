"""A candidate against its PyTorch module, over sizes and padding patterns that are not the example's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..export.io_metadata import IO_KEY, IO_VERSION
from ..export.patterns import NAMES, padding_patterns
from ..models.masks import Mask
from ..runtime import InputError, ModelError, Session

if TYPE_CHECKING:
    from torch import nn

# Batch and length; co-prime with each other and unlike what anyone takes for an example.
SIZES = ((1, 1), (2, 1), (1, 7), (3, 17), (2, 33))


@dataclass(frozen=True)
class Case:
    """One run of both.

    Attributes
    ----------
    batch, length
        Size of the mask.
    pattern
        Name of the padding pattern.
    rows
        Number of valid rows: real tokens to which the mask leaves a key. Only they are compared.
    error
        Largest absolute difference on valid rows, over the outputs; NaN if either side has one; None without rows.
    padding_finite
        Whether the candidate's other rows are finite.
    """

    batch: int
    length: int
    pattern: str
    rows: int
    error: float | None
    padding_finite: bool

    def ok(self, tolerance: float) -> bool:
        """Whether the error is within the tolerance and padding rows are finite. NaN never is."""
        return self.padding_finite and (self.error is None or self.error <= tolerance)


@dataclass(frozen=True)
class Comparison:
    """The cases of a comparison and its verdict.

    Attributes
    ----------
    cases
        In the order in which they were run.
    tolerance
        Largest absolute difference allowed.
    outputs
        Names of the outputs that were compared.
    not_compared
        Outputs without a row per token, whose rows can't be told valid or not.
    """

    cases: tuple[Case, ...]
    tolerance: float
    outputs: tuple[str, ...]
    not_compared: tuple[str, ...]

    @property
    def failures(self) -> tuple[Case, ...]:
        """The cases that failed."""
        return tuple(case for case in self.cases if not case.ok(self.tolerance))

    @property
    def ok(self) -> bool:
        """Whether something was compared and nothing failed."""
        return any(case.error is not None for case in self.cases) and not self.failures

    @property
    def worst(self) -> float | None:
        """Largest error of all cases: NaN if one is NaN, None if nothing was compared."""
        errors = [case.error for case in self.cases if case.error is not None]
        return float(np.max(errors)) if errors else None


def compare(
    session: Session,
    module: nn.Module,
    example_inputs: Mapping[str, Any],
    *,
    mask: Mask | None = None,
    sizes: Sequence[tuple[int, int]] = SIZES,
    patterns: Sequence[str] = NAMES,
    tolerance: float = 1e-5,
    seed: int = 0,
    on_case: Callable[[Case], None] | None = None,
) -> Comparison:
    """Run a candidate and the module it was exported from on the same inputs and compare their valid rows.

    Parameters
    ----------
    session
        The candidate. Its ``maskport.io`` metadata tells which inputs are masks, and the names of the axes.
    module
        The reference; run in evaluation mode, given back as it was.
    example_inputs
        Tensors by name. Their dtypes are kept. Padding masks follow the pattern: inputs [batch, length] with the role
        of a mask that have a pad value or a name that ends in ``mask``. Other floating-point inputs are drawn from the
        normal distribution, all others from the example's own values. Values that are no tensors go to the module as
        they are.
    mask
        The mask that says which rows have a key. None: every real token has one.
    sizes
        Pairs of batch and length.
    patterns
        Names from :data:`.patterns.NAMES`.
    tolerance
        Largest absolute difference on valid rows. The default suits float32: reordered sums differ by some 1e-6.
    seed
        Of everything that is drawn.
    on_case
        Called after each case.

    Raises
    ------
    InputError
        If a pattern's name is unknown.
    ModelError
        If the candidate doesn't say which axes its inputs have, or says it in a version that isn't known.
    """
    if unknown := set(patterns) - set(NAMES):
        raise InputError(f"unknown padding patterns {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    plan = _Plan.of(session)
    rng = np.random.default_rng(seed)
    cases = []
    for batch, length in sizes:
        drawn = padding_patterns(batch, length, rng) if plan.masks else {"ones": np.ones((batch, length), bool)}
        for name in (name for name in drawn if name in patterns):
            inputs = _inputs(example_inputs, plan, drawn[name], rng)
            expected = _eager(module, {**example_inputs, **inputs}, session.output_names)
            given = session.run({name: inputs[name] for name in session.input_names})
            actual = {name: value.numpy() for name, value in given.items()}
            valid = drawn[name] & _has_key(mask, inputs, length)
            errors = [_error(actual[o][valid], expected[o][valid]) for o in plan.outputs]
            finite = all(bool(np.isfinite(actual[o][~valid]).all()) for o in plan.outputs)
            error = float(np.max(errors)) if errors and valid.any() else None
            cases.append(Case(batch, length, name, int(valid.sum()), error, finite))
            if on_case is not None:
                on_case(cases[-1])
    skipped = tuple(name for name in session.output_names if name not in plan.outputs)
    return Comparison(tuple(cases), tolerance, plan.outputs, skipped)


@dataclass(frozen=True)
class _Plan:
    """What the metadata says: the axes of each input, the axes of a row, the padding masks, the outputs with rows."""

    axes: dict[str, list[int | str | None]]
    row_axes: list[int | str | None]
    masks: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, session: Session) -> _Plan:
        if IO_KEY not in session.metadata:
            raise ModelError(f"the file has no {IO_KEY} metadata; export it with maskport.export.export")
        io = json.loads(session.metadata[IO_KEY])
        if io["version"] != IO_VERSION:
            raise ModelError(f"the file's {IO_KEY} has version {io['version']}, this release reads {IO_VERSION}")
        axes = {name: entry["axes"] for name, entry in io["inputs"].items()}
        masks = tuple(
            name
            for name, entry in io["inputs"].items()
            if entry["role"] == "mask" and len(entry["axes"]) == 2 and ("pad" in entry or name.endswith("mask"))
        )
        rows = masks or tuple(n for n, entry in io["inputs"].items() if entry["role"] == "tokens")
        if not rows:
            raise ModelError("the file has neither a padding mask nor an input with free batch and length axes")
        row_axes = axes[rows[0]][:2]
        outputs = tuple(name for name, entry in io["outputs"].items() if entry["axes"][:2] == row_axes)
        return cls(axes, row_axes, masks, outputs)


def _inputs(
    example_inputs: Mapping[str, Any], plan: _Plan, keep: np.ndarray, rng: np.random.Generator
) -> dict[str, Any]:
    import torch

    sizes = dict(zip(plan.row_axes, keep.shape, strict=True))
    inputs = {}
    for name, example in example_inputs.items():
        if name not in plan.axes:
            continue
        shape = [sizes.get(axis, size) for axis, size in zip(plan.axes[name], example.shape, strict=True)]
        if name in plan.masks:
            values = keep
        elif example.is_floating_point():
            values = rng.standard_normal(shape)
        else:
            values = rng.choice(example.flatten().numpy(), shape)
        inputs[name] = torch.from_numpy(np.array(values)).to(example.dtype)
    return inputs


def _eager(module: nn.Module, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
    import torch
    from torch.utils import _pytree as pytree

    from ..export.module_state import evaluation

    with torch.no_grad(), evaluation(module):
        leaves = [leaf for leaf in pytree.tree_leaves(module(**inputs)) if isinstance(leaf, torch.Tensor)]
    return {name: leaf.numpy() for name, leaf in zip(names, leaves, strict=True)}


def _error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))


def _has_key(mask: Mask | None, inputs: Mapping[str, Any], length: int) -> np.ndarray:
    """Whether a row has a key, under every head: bool, broadcastable to [B, Q]."""
    if mask is None:
        return np.ones((1, 1), bool)
    dense = mask.dense(length, length, **{name: inputs[name].numpy() for name in mask.tensors})
    return np.asarray(dense.any(axis=3).all(axis=1))
