"""Tests without code: the models that ``[tool.maskport.models]`` of a pyproject.toml lists."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..runtime.errors import MaskportError
from .errors import ToolError
from .project_settings import PROJECT, section

if TYPE_CHECKING:
    from .verdict import Verdict

__all__ = ["ModelsFile"]

# The padding patterns of a validation, each a test of its own.
PATTERNS = ("ones", "right", "left", "holes", "mixed", "one token", "no token")
# What each setting of a model is.
KINDS = {
    **dict.fromkeys(("path", "against", "expect", "unchanged", "budget"), str),
    **dict.fromkeys(("contracts", "lint", "quick"), bool),
    "sm": int,
    "tolerances": dict,
}


@dataclass(frozen=True)
class Listed:
    """What pyproject.toml says of a model; paths are relative to its folder.

    Attributes
    ----------
    path
        The ONNX file.
    against
        What it must do the same as: an .onnx file, or a SPEC as of `maskport export`.
    expect
        The mask that its self-attention must have.
    contracts, lint
        Whether to hold it to its masks, and to lint it.
    unchanged
        A file whose masks it must have.
    budget, sm
        What it may ask of a CUDA device of that compute capability.
    quick
        Whether to compare at one size.
    tolerances
        By an output's name or element type; over those of ``[tool.maskport.tolerances]``.
    """

    path: str
    against: str | None = None
    expect: str | None = None
    contracts: bool = True
    lint: bool = True
    unchanged: str | None = None
    budget: str | None = None
    sm: int = 90
    quick: bool = False
    tolerances: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, name: str, said: object) -> Listed:
        """Read an entry: a table, or a path alone.

        Raises
        ------
        ToolError
            If it can't be meant.
        """
        entry = {"path": said} if isinstance(said, str) else said
        if not isinstance(entry, dict) or "path" not in entry:
            raise ToolError(f"{name} of [tool.maskport.models] is {said!r}; give a path, or a table with a path")
        known = [one.name for one in fields(cls)]
        for key, value in entry.items():
            if key not in known:
                raise ToolError(f"[tool.maskport.models.{name}] has {key!r}; give {', '.join(known)}")
            if not isinstance(value, KINDS[key]) or (KINDS[key] is int and isinstance(value, bool)):
                raise ToolError(f"{key} of [tool.maskport.models.{name}] is {value!r}, no {KINDS[key].__name__}")
        return cls(**entry)


class ModelsFile(pytest.File):
    """A pyproject.toml."""

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield the models that it lists."""
        try:
            models = section(self.path.parent, "models")
            listed = {name: Listed.read(name, said) for name, said in models.items()}
        except ToolError as error:
            raise self.CollectError(str(error)) from error
        for name, one in listed.items():
            yield ModelTests.from_parent(self, name=name, listed=one)


class ModelTests(pytest.Collector):
    """One model; what several of its tests need is run once."""

    def __init__(self, *, listed: Listed, **more: Any) -> None:
        super().__init__(**more)
        self.listed = listed

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its tests."""
        one = self.listed
        if one.lint:
            yield ModelTest.from_parent(self, name="lint", check=lint)
        if one.contracts or one.expect is not None:
            yield ModelTest.from_parent(self, name="contracts", check=contracts)
        for pattern in PATTERNS if one.against is not None else ():
            yield ModelTest.from_parent(
                self, name=f"parity[{pattern}]", check=functools.partial(parity, pattern=pattern)
            )
        if one.unchanged is not None:
            yield ModelTest.from_parent(self, name="masks", check=masks)
        if one.budget is not None:
            yield ModelTest.from_parent(self, name="budget", check=budget)

    def file(self, name: str) -> Path:
        """Return a path that pyproject.toml names."""
        return self.path.parent / name

    def look(self) -> None:
        """Look whether the model is there.

        Raises
        ------
        ToolError
            If it isn't.
        """
        path = self.file(self.listed.path)
        if not path.is_file():
            raise ToolError(f"{path} is no file; make it before the tests, or take {self.name} out of {PROJECT}")

    @functools.cached_property
    def verdict(self) -> Verdict:
        """The comparison with the reference."""
        from .spec import load
        from .validation import validate

        one = self.listed
        assert one.against is not None
        examples: Any = None
        reference: Any = self.file(one.against)
        if not one.against.endswith(".onnx"):
            source = load(one.against)
            reference, examples = source.module, source.example_inputs
        allowed = {**section(self.path.parent, "tolerances"), **one.tolerances}
        return validate(self.file(one.path), reference, examples, contracts=False, quick=one.quick, tolerances=allowed)


class ModelTest(pytest.Item):
    """One test of a model."""

    parent: ModelTests

    def __init__(self, *, check: Any, **more: Any) -> None:
        super().__init__(**more)
        self.check = check

    def runtest(self) -> None:
        """Run it."""
        from .assertions import failure

        model = self.parent
        try:
            from ..export.errors import InspectError

            model.look()
            try:
                self.check(model)
            except InspectError as error:
                raise ToolError(str(error)) from error
        except (MaskportError, ModuleNotFoundError) as error:
            told = f"it could not be run: {error}"
            raise failure(told, model.name, model.file(model.listed.path)) from error

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what an assertion says; of anything else, the traceback."""
        return str(excinfo.value) if isinstance(excinfo.value, AssertionError) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where it is from, and its name."""
        return self.path, None, f"{self.parent.name}: {self.name}"


def lint(model: ModelTests) -> None:
    """Assert that it has no known faults."""
    from .assertions import assert_lint_clean
    from .linting.selection import configured

    selection = configured(model.path.parent)
    assert_lint_clean(model.file(model.listed.path), select=selection.select, ignore=selection.ignore)


def contracts(model: ModelTests) -> None:
    """Assert that its masks hold."""
    from .assertions import assert_mask_contracts

    assert_mask_contracts(model.file(model.listed.path), model.listed.expect)


def parity(model: ModelTests, pattern: str) -> None:
    """Assert that it does what its reference does, at one padding pattern; at the first, that anything was compared."""
    from .annotations import verdict_annotations
    from .assertions import annotated
    from .verdict import Contract

    verdict = model.verdict
    failed, mine = [], 0
    for check in verdict.cases:
        # What has no mask has no pattern, and is compared at all sizes without padding.
        if check.pattern == pattern or (check.pattern == "-" and pattern == PATTERNS[0]):
            mine += 1
            failed += [] if check.ok else [str(check)]
    if pattern == PATTERNS[0]:
        failed += [f"{one.name}: {one.why}" for one in verdict.failures if isinstance(one, Contract)]
        if verdict.worst is None and not failed:
            failed += ["nothing was compared", *(f"{one.name}: {one.why}" for one in verdict.contracts)]
    if failed:
        # That of all patterns together: it is written once.
        found = verdict_annotations(verdict, model.file(model.listed.path))
        raise annotated(AssertionError("\n".join(failed)), found)
    if not mine:
        pytest.skip(f"no case has the padding {pattern!r}: there is no mask, or it was not compared")


def masks(model: ModelTests) -> None:
    """Assert that its masks are those of another file."""
    from .assertions import assert_masks_unchanged

    assert model.listed.unchanged is not None
    assert_masks_unchanged(model.file(model.listed.unchanged), model.file(model.listed.path))


def budget(model: ModelTests) -> None:
    """Assert that it asks no more of a CUDA device than it may."""
    from .assertions import assert_kernel_budget

    assert model.listed.budget is not None
    assert_kernel_budget(model.file(model.listed.path), model.listed.budget, sm=model.listed.sm)
