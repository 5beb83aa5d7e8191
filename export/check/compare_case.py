"""One case run on both sides: shapes, element types and values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..cases.draw import Case
from ..cases.parity import Difference, differences
from ..cases.rows import VALID
from ..errors import ExportError
from . import messages
from .backend import BackendError, load
from .blame import at, baker, first_nan, infinite_constants, named_in
from .eager import RefusedError
from .messages import joined
from .subject import Subject

Outputs = Mapping[str, np.ndarray]


def compare_case(subject: Subject, case: Case) -> tuple[list[Difference], Outputs]:
    """Run a case on both sides and compare.

    Returns
    -------
    list of Difference
        One per output and kind of row; those of valid rows are within their limits.
    dict
        What the module gives.

    Raises
    ------
    RefusedError
        If the module itself can't take the case.
    ExportError
        If the model fails, or gives another rank, size, element type or value than the module.
    """
    expected = subject.eager(case.inputs)
    try:
        actual = subject.backend.run(case.inputs)
    except BackendError as error:
        raise ExportError(_failed(subject, case, str(error))) from error
    for name, value in expected.items():
        if problem := _form(subject, case, name, actual[name], value):
            raise ExportError(problem)
    found = differences(subject.layout, case, actual, expected)
    for difference in found:
        if difference.rows == VALID and difference.nan:
            raise ExportError(_nan(subject, case, difference))
        if difference.rows == VALID and difference.error > difference.limit:
            raise ExportError(_wrong(subject, case, difference, actual, expected))
    return found, expected


def _failed(subject: Subject, case: Case, message: str) -> str:
    """Tell a failure of the model at some sizes: which axis is baked in, and by which node."""
    baked = _baked_axes(subject, case)
    try:
        # Fused nodes don't have the names of the model's own.
        load(subject.model, optimized=False).run(case.inputs)
        node = None
    except BackendError as error:
        message = str(error)
        node = named_in(message, subject.model)
    culprit = baker(subject.model, node, [subject.example_sizes[axis] for axis in baked]) if node is not None else None
    reason = message.rpartition("Status Message: ")[2]
    where = ", ".join(_axis(subject, axis) for axis in baked)
    return joined(
        f"{subject.name}: the exported file fails at {case.name}, and the module doesn't",
        f"{where} is baked in at the example's size" if baked else "",
        f"{subject.backend.how}: {reason}",
        at(culprit or node),
        messages.BAKED if baked else "",
    )


def _baked_axes(subject: Subject, case: Case) -> list[str]:
    """Return the free axes of which one alone, at the case's size, makes the model fail or give another shape."""
    baked = []
    for axis in subject.layout.free:
        alone = subject.draw({**subject.example_sizes, axis: case.sizes[axis]})
        try:
            expected = subject.eager(alone.inputs)
        except RefusedError:
            continue
        try:
            actual = subject.backend.run(alone.inputs)
        except BackendError:
            baked.append(axis)
            continue
        if any(actual[name].shape != value.shape for name, value in expected.items()):
            baked.append(axis)
    return baked


def _axis(subject: Subject, axis: str) -> str:
    size = subject.example_sizes[axis]
    return f"{messages.axes_of(axis, subject.places(axis))} = {size}"


def _form(subject: Subject, case: Case, name: str, actual: np.ndarray, expected: np.ndarray) -> str | None:
    value = next(value for value in subject.model.graph.outputs if value.name == name)
    if actual.dtype != expected.dtype:
        return joined(
            f"{subject.name}: output {name!r} has dtype {actual.dtype} in the file, and {expected.dtype} in PyTorch",
            at(value.producer()),
        )
    if actual.shape == expected.shape:
        return None
    shapes = f"output {name!r} has shape {list(actual.shape)} in the file, and {list(expected.shape)} in PyTorch"
    baked = _baked_axes(subject, case)
    where = ", ".join(_axis(subject, axis) for axis in baked)
    fixed = actual.ndim == expected.ndim and any(
        one in subject.example_sizes.values()
        for one, two in zip(actual.shape, expected.shape, strict=True)
        if one != two
    )
    sizes = [subject.example_sizes[axis] for axis in baked]
    return joined(
        f"{subject.name}: at {case.name} {shapes}",
        f"{where} is baked in at the example's size" if baked and fixed else "",
        at(baker(subject.model, value, sizes)),
        messages.BAKED if fixed else messages.SPECIAL,
    )


def _nan(subject: Subject, case: Case, difference: Difference) -> str:
    node = first_nan(subject.model, case.inputs) if subject.backend.is_onnxruntime else None
    return joined(
        f"{subject.name}: at {case.name} the file gives NaN in {difference.nan} of {difference.elements} numbers of "
        f"{difference.output!r} on valid rows, and the module gives none",
        at(node),
        messages.HALF_CONSTANT if node is not None and infinite_constants(node) else "",
        messages.NAN,
    )


def _wrong(subject: Subject, case: Case, difference: Difference, actual: Outputs, expected: Outputs) -> str:
    name = difference.output
    kinds = case.rows.kinds(subject.layout, subject.layout.outputs[name], expected[name].shape)
    assert kinds is not None
    apart = np.abs(actual[name].astype(np.float64) - expected[name].astype(np.float64))
    apart = np.where(np.broadcast_to(kinds[VALID], apart.shape), np.nan_to_num(apart, nan=0.0), 0.0)
    place = np.unravel_index(int(apart.argmax()), apart.shape)
    value = next(value for value in subject.model.graph.outputs if value.name == name)
    return joined(
        f"{subject.name}: at {case.name} {name!r} is wrong by {difference.error:.2g} on valid rows "
        f"(allowed: {difference.limit:.2g})",
        f"largest at {[int(i) for i in place]}: {actual[name][place]:.6g} in the file, "
        f"{expected[name][place]:.6g} in PyTorch",
        at(baker(subject.model, value, ()), "the last node before it is"),
        messages.SPECIAL if _is_special(subject, case) else "",
    )


def _is_special(subject: Subject, case: Case) -> bool:
    """Whether the model is right at the example's sizes with the same kind of mask, so that it is a matter of size."""
    same = subject.draw(subject.example_sizes, case.pattern)
    try:
        found = differences(subject.layout, same, subject.backend.run(same.inputs), subject.eager(same.inputs))
    except (BackendError, RefusedError):
        return False
    return all(difference.ok for difference in found if difference.rows == VALID)
