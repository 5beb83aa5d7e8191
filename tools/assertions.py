"""Assertions on ONNX files: as tests, and as what the tests of listed models are made of."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .project_settings import PROJECT, section

if TYPE_CHECKING:
    from torch import nn

    from ..models.masks import Mask
    from .annotations import Annotation
    from .dryrun import Trace
    from .linting.lint import Linted
    from .mask_diff import Diff
    from .verdict import Verdict

__all__ = [
    "ANNOTATIONS",
    "annotated",
    "assert_kernel_budget",
    "assert_lint_clean",
    "assert_mask_contracts",
    "assert_masks_unchanged",
    "assert_onnx_parity",
    "failure",
]

Model = str | os.PathLike[str] | bytes
# What is tried: its name, what is wrong with it or None, and why it was not run or None.
Tried = tuple[str, str | None, str | None]
# Of a failed test's error, and of its report: the annotations.
ANNOTATIONS = "maskport_annotations"


def assert_onnx_parity(
    reference: nn.Module | Model,
    candidate: Model,
    example_inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    tolerances: Mapping[str, float] | None = None,
    quick: bool = False,
    device: str = "cpu",
    seed: int = 0,
    subtests: pytest.Subtests | None = None,
) -> Verdict:
    """Assert that a file does what a module, or another file, does: over sizes and padding patterns, on valid rows.

    Parameters
    ----------
    reference, candidate, example_inputs, quick, device, seed
        As of :func:`maskport.tools.validate`.
    tolerances
        By an output's name or its element type; over those of ``[tool.maskport.tolerances]``, over the defaults.
    subtests
        pytest's fixture of that name: each case is then shown on its own.

    Raises
    ------
    AssertionError
        If rows differ, or nothing was compared.
    """
    __tracebackhide__ = True
    from .validation import validate

    allowed = {**section(project(), "tolerances"), **(tolerances or {})}
    verdict = validate(
        candidate, reference, example_inputs, contracts=False, quick=quick, device=device, seed=seed, tolerances=allowed
    )
    return _assert_verdict(f"{_name(candidate)} is not its reference", candidate, verdict, subtests)


def assert_mask_contracts(
    model: Model, expect: str | Mask | None = None, *, seed: int = 0, subtests: pytest.Subtests | None = None
) -> Verdict:
    """Assert that padding, causality, windows and segments hold in a file, without a reference.

    Parameters
    ----------
    model, expect, seed
        As of :func:`maskport.tools.contracts.contracts_of`.
    subtests
        pytest's fixture of that name: each contract is then shown on its own, and what was not run is skipped.

    Raises
    ------
    AssertionError
        If a contract is broken, or none could be shown.
    """
    __tracebackhide__ = True
    from .contracts import contracts_of

    verdict = contracts_of(model, expect, seed=seed)
    return _assert_verdict(f"{_name(model)} breaks what its masks mean", model, verdict, subtests)


def assert_lint_clean(model: Model, *, select: Collection[str] = (), ignore: Collection[str] = ()) -> Linted:
    """Assert that `maskport lint` finds neither errors nor warnings; what isn't given is as in pyproject.toml.

    Raises
    ------
    AssertionError
        If it does; notes are no findings.
    """
    __tracebackhide__ = True
    from .linting.github import lint_annotations
    from .linting.lint import lint
    from .linting.selection import configured

    selection = configured(project(), tuple(select), tuple(ignore))
    linted = lint(model, select=selection.select, ignore=selection.ignore)
    found = [finding for finding in linted.findings if finding.rule.level != "note"]
    lines = [
        f"{finding.rule.code} {finding.rule.name}: {': '.join(filter(None, (finding.site, finding.message)))}"
        for finding in found
    ]
    if lines:
        told = _told(f"{_name(model)} has faults; `maskport explain CODE` says more", lines)
        raise annotated(
            AssertionError(told), [one for one in lint_annotations(linted, _path(model)) if one.level != "notice"]
        )
    return linted


def assert_masks_unchanged(old: Model, new: Model) -> Diff:
    """Assert that the attention of two files means the same: masks, scales, heads, softcaps, sinks and biases.

    Raises
    ------
    AssertionError
        If any doesn't, is there in one file alone, or is no longer understood.
    """
    __tracebackhide__ = True
    from .diff_table import witness_text
    from .mask_diff import diff

    found = diff(old, new)
    lines = [f"{site.name} is gone" for site in found.removed] + [f"{site.name} is new" for site in found.added]
    for site in found.sites:
        lines += [f"{site.new.name}: {fact} was {a}, is {b}" for fact, (a, b) in site.facts.items()]
        if site.mask is not None:
            witness = site.mask.witness
            why = site.mask.why if witness is None else witness_text(witness)
            lines.append(f"{site.new.name}: `{site.mask.old}` became `{site.mask.new}`" + (f"; {why}" if why else ""))
    before, after = found.not_compared
    if after > before:
        lines.append(f"attention that is not understood: {after}, before {before}")
    if found.changed:
        told = _told(f"the masks of {_name(new)} are not those of {_name(old)}", lines)
        changed = [site.new.node for site in found.sites if site.changed] + [site.node for site in found.added]
        raise failure(told, "masks", new, changed[0] if changed else None)
    return found


def assert_kernel_budget(model: Model, budget: str, *, sm: int = 90, inputs: Mapping[str, Any] | None = None) -> Trace:
    """Assert that a file asks no more of a CUDA device than a budget, by a dry run that needs no device.

    Parameters
    ----------
    model, sm, inputs
        As of :func:`maskport.tools.dryrun`.
    budget
        As `maskport dryrun --budget` takes it: ``"launches=40,d2h=1,attention=flash+cudnn,graph"``.

    Raises
    ------
    AssertionError
        If it asks for more.
    """
    __tracebackhide__ = True
    from .dryrun.budget import Budget
    from .dryrun.run import dryrun

    most = Budget.parse(budget)
    trace = dryrun(model, sm, inputs, graph=most.graph)
    if over := most.overrun(trace):
        raise failure(_told(f"{_name(model)} is over its budget on sm{sm}", over), "budget", model)
    return trace


def failure(told: str, title: str, model: Model, node: str | None = None) -> BaseException:
    """Return an assertion's error that is annotated at a model, or at the line that one of its nodes is from."""
    from .annotations import Annotation, at, source_in

    source = None if node is None else source_in(model, node)
    return annotated(AssertionError(told), [Annotation("error", title, told, *at(source, _path(model)))])


def annotated(error: BaseException, annotations: Iterable[Annotation]) -> BaseException:
    """Return an error that carries annotations."""
    error.__dict__[ANNOTATIONS] = list(annotations)
    return error


def project() -> Path:
    """Return the nearest folder up from the working directory that has a pyproject.toml; else the working directory."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / PROJECT).is_file()), here)


def tried(verdict: Verdict) -> list[Tried]:
    """Return the cases and contracts of a verdict by their names, each once."""
    from .verdict import NOT_RUN

    cases: dict[str, list[str]] = {}
    for check in verdict.cases:
        failed = cases.setdefault(check.name.split("/")[1], [])
        failed += [] if check.ok else [str(check)]
    found: list[Tried] = [(name, "\n".join(failed) or None, None) for name, failed in cases.items()]
    for contract in verdict.contracts:
        broken = contract.why or "it is broken" if contract in verdict.failures else None
        left_out = contract.why or "nothing was tried" if contract.status == NOT_RUN else None
        found.append((contract.name, broken, left_out))
    return found


def _assert_verdict(headline: str, model: Model, verdict: Verdict, subtests: pytest.Subtests | None) -> Verdict:
    __tracebackhide__ = True
    from .annotations import verdict_annotations

    found, annotations = tried(verdict), verdict_annotations(verdict, _path(model))
    if subtests is not None:
        _show(found, subtests, annotations)
    # A case that is broken begins with its name.
    lines = [broken if broken.startswith(name) else f"{name}: {broken}" for name, broken, _ in found if broken]
    if subtests is not None and lines:
        # Each was shown, and fails the test.
        return verdict
    if not lines and not verdict.ok:
        headline = f"{headline}, as far as is known: nothing was shown"
        lines = [f"{name}: {left_out}" for name, _, left_out in found if left_out is not None]
    if not verdict.ok:
        raise annotated(AssertionError(_told(headline, lines)), annotations)
    return verdict


def _show(found: Iterable[Tried], subtests: pytest.Subtests, annotations: Sequence[Annotation]) -> None:
    for name, broken, left_out in found:
        with subtests.test(msg=name):
            if broken is not None:
                # Each is written once, with whichever it is that fails.
                raise annotated(pytest.fail.Exception(broken, pytrace=False), annotations)
            if left_out is not None:
                pytest.skip(left_out)


MOST_LINES = 12


def _told(headline: str, lines: Iterable[str]) -> str:
    lines = list(lines)
    more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n  ".join([headline, *lines[:MOST_LINES], *more])


def _path(model: object) -> str | os.PathLike[str]:
    return model if isinstance(model, str | os.PathLike) else "the model"


def _name(model: object) -> str:
    return Path(model).name if isinstance(model, str | os.PathLike) else "the model"
