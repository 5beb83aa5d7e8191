"""The pytest plugin: each assertion passes and fails, shows what it tried, and costs nothing until it runs."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import onnx
import pytest
from maskport.tools import pytest_plugin
from maskport.tools.pytest_models import PATTERNS

from ..test_house import python
from .attention_graphs import attention
from .tiny_models import tiny

pytest_plugins = ["pytester"]
# An installation from before the plugin has no entry point.
INSTALLED = any(entry.value == pytest_plugin.__name__ for entry in entry_points(group="pytest11"))
LOADED = () if INSTALLED else ("-p", pytest_plugin.__name__)
UNPADDED = ("attendI = And (windowI, keysI)", "attendI = Identity (windowI)")
WEAK = ("float least = {-3.4e38}", "float least = {-5.0}")


@pytest.fixture(autouse=True)
def folder(pytester: pytest.Pytester) -> Path:
    """A project with small models, right and wrong."""
    path = pytester.path
    (path / "right.onnx").write_bytes(tiny())
    (path / "dropped.onnx").write_bytes(tiny("dropped"))
    onnx.save(attention(3, 5), path / "window.onnx")
    onnx.save(attention(5), path / "one.onnx")
    onnx.save(attention(3, 6), path / "wider.onnx")
    onnx.save(attention(3, 5, replace=UNPADDED), path / "unpadded.onnx")
    return path


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest(*LOADED, "-p", "no:xdist", *arguments)

    return run


def project(pytester: pytest.Pytester, text: str, test: str | None = None) -> None:
    """Write a pyproject.toml, and a test whose body is given."""
    (pytester.path / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{text}")
    if test is not None:
        pytester.makepyfile(f"from maskport.tools.pytest_plugin import *\n\ndef test_it(subtests):\n    {test}\n")


PASS = {
    "parity": "assert_onnx_parity('right.onnx', 'right.onnx', quick=True)",
    "contracts": "assert_mask_contracts('window.onnx')",
    "the expected mask": "assert_mask_contracts('one.onnx', 'window(5, 0) & padding(attention_mask)')",
    "lint": "assert_lint_clean('window.onnx')",
    "lint of some rules": "assert_lint_clean('unpadded.onnx', ignore=['MP102'])",
    "masks": "assert_masks_unchanged('window.onnx', 'window.onnx')",
}
FAIL = {
    "parity": (
        "assert_onnx_parity('right.onnx', 'dropped.onnx', quick=True)",
        ["*AssertionError: dropped.onnx is not its reference", "*batch=3,seq=17,mask=right: *valid rows differ by *"],
    ),
    "contracts": (
        "assert_mask_contracts('window.onnx', 'window(3, 0) & padding(attention_mask)')",
        ["*AssertionError: window.onnx breaks what its masks mean", "*expected-mask/layers.1.self_attn: *"],
    ),
    "lint": (
        "assert_lint_clean('unpadded.onnx')",
        [
            "*AssertionError: unpadded.onnx has faults; `maskport explain CODE` says more",
            "*MP102 mask-without-effect: nothing of the mask attention_mask but its size reaches an output",
        ],
    ),
    "masks": (
        "assert_masks_unchanged('window.onnx', 'wider.onnx')",
        [
            "*AssertionError: the masks of wider.onnx are not those of window.onnx",
            "*layers.1.self_attn: `window(5, 0) & padding(attention_mask)` became `window(6, 0) & *; first diff*",
        ],
    ),
}


@pytest.mark.parametrize("test", PASS.values(), ids=PASS)
def test_what_is_right_passes(pytester: pytest.Pytester, run: Run, test: str) -> None:
    project(pytester, "", test)
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize(("test", "lines"), FAIL.values(), ids=FAIL)
def test_what_is_wrong_fails_and_says_why(pytester: pytest.Pytester, run: Run, test: str, lines: list[str]) -> None:
    project(pytester, "", test)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(lines)
    # The test's own line is shown, and none of the plugin's.
    assert "pytest_plugin.py" not in result.stdout.str().replace("test_what_is_wrong", "")


def test_each_case_is_shown(pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, "", "assert_onnx_parity('right.onnx', 'dropped.onnx', quick=True, subtests=subtests)")
    result = run("-v")
    result.stdout.fnmatch_lines(["*test_it SUBPASSED?batch=3,seq=17,mask=ones?*", "*test_it SUBFAILED?*mask=left?*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    project(pytester, "", "assert_mask_contracts('window.onnx', subtests=subtests)")
    result = run("-v", "-rs")
    result.stdout.fnmatch_lines(["*test_it SUBPASSED?padding-invariance*"])
    assert result.ret == 0


def test_tolerances_are_layered(pytester: pytest.Pytester, run: Run) -> None:
    test = "assert_onnx_parity('right.onnx', 'dropped.onnx', quick=True{})"
    project(pytester, "[tool.maskport.tolerances]\nfloat32 = 100.0\n", test.format(""))
    run().assert_outcomes(passed=1)
    project(pytester, "[tool.maskport.tolerances]\nfloat32 = 100.0\n", test.format(", tolerances={'float32': 1e-5}"))
    run().assert_outcomes(failed=1)
    project(pytester, "[tool.maskport.tolerances]\nfloat32 = 1e-5\n", test.format(", tolerances={'output': 100.0}"))
    run().assert_outcomes(passed=1)
    project(pytester, "", test.format(", tolerances={'other': 1.0}"))
    result = run()
    result.stdout.fnmatch_lines(
        ["*a tolerance is given for 'other'; give the name of an output (output) or an element *"]
    )


def test_a_budget(null_device: object, pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, "", "assert_kernel_budget('window.onnx', 'launches=1000')")
    run().assert_outcomes(passed=1)
    project(pytester, "", "assert_kernel_budget('window.onnx', 'launches=1')")
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*window.onnx is over its budget on sm90", "*launches is *, at most 1 in the budget"])


MODELS = """
[tool.maskport.models]
good = "right.onnx"
[tool.maskport.models.twin]
path = "right.onnx"
against = "right.onnx"
quick = true
contracts = false
[tool.maskport.models.bad]
path = "wider.onnx"
expect = "window(5, 0) & padding(attention_mask)"
unchanged = "window.onnx"
lint = false
"""


def test_models_of_pyproject_become_tests(pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, MODELS)
    result = run("-v")
    lines = [f"pyproject.toml::twin::parity[[]{pattern}[]] PASSED*" for pattern in ("ones", "right", "left")]
    result.stdout.fnmatch_lines(["pyproject.toml::good::lint PASSED*", "pyproject.toml::twin::lint PASSED*", *lines])
    result.stdout.fnmatch_lines(["pyproject.toml::bad::contracts FAILED*", "pyproject.toml::bad::masks FAILED*"])
    result.stdout.fnmatch_lines(["the masks of wider.onnx are not those of window.onnx", "*first difference at *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_models_are_found_as_other_tests_are(pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, 'testpaths = ["tests"]\n' + MODELS)
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_own(): pass\n")
    collected = ("--collect-only", "-q")
    run(*collected).stdout.fnmatch_lines(["tests/test_own.py::test_own", "pyproject.toml::good::lint"])
    run(*collected, "-k", "masks").stdout.fnmatch_lines(["pyproject.toml::bad::masks", "", "1/*"])
    run(*collected, "pyproject.toml::twin").stdout.fnmatch_lines(["pyproject.toml::twin::lint", "*parity*"])
    assert "pyproject" not in run(*collected, "tests").stdout.str()
    run("-q", "pyproject.toml::bad")
    run(*collected, "--lf", "pyproject.toml::bad").stdout.fnmatch_lines(["pyproject.toml::bad::contracts"])
    workers = pytester.runpytest(*LOADED, "-n", "1", "-q", "-k", "good or own")
    assert workers.ret == 0


BAD = {
    "no path": ('[tool.maskport.models.m]\nagainst = "x"\n', "*m of *tool.maskport.models* give a path*"),
    "another key": ('[tool.maskport.models.m]\npath = "m"\nmask = 1\n', "*models.m* has 'mask'; give path, *"),
    "another type": (
        '[tool.maskport.models.m]\npath = "m"\nlint = 1\n',
        "*lint of *tool.maskport.models.m* is 1, no bool*",
    ),
}


@pytest.mark.parametrize(("text", "line"), BAD.values(), ids=BAD)
def test_what_can_not_be_meant_is_an_error(pytester: pytest.Pytester, run: Run, text: str, line: str) -> None:
    project(pytester, text)
    result = run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([line])


def test_a_file_that_is_not_there_fails(pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, '[tool.maskport.models]\nm = "none.onnx"\n')
    result = run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["it could not be run: *none.onnx is no file; make it before the tests, or take m out of pyproject.toml"]
    )


def test_a_project_without_models_has_no_tests_of_them(pytester: pytest.Pytester, run: Run) -> None:
    project(pytester, "[tool.maskport.lint]\nignore = []\n")
    assert run().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_nothing_heavy_is_imported_before_a_test_runs(pytester: pytest.Pytester) -> None:
    project(pytester, MODELS)
    # Whether it has an entry point is another question in another folder.
    printed = python(
        f"""
import os, sys, pytest
from importlib.metadata import entry_points
os.chdir({str(pytester.path)!r})
name = {pytest_plugin.__name__!r}
loaded = [] if any(entry.value == name for entry in entry_points(group="pytest11")) else ["-p", name]
pytest.main(["-q", "--collect-only", *loaded])
print("heavy:", {{"torch", "onnx", "onnx_ir", "onnxruntime", "numpy", "rich"}} & set(sys.modules))"""
    )
    assert "pyproject.toml::bad::masks" in printed
    assert "heavy: set()" in printed


def test_patterns_are_those_of_a_validation() -> None:
    from maskport.tools.parity import plan

    assert PATTERNS == plan.PATTERNS


def test_it_is_an_entry_point(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"maskport": pytest_plugin.__name__}


def test_the_plugin_offers_what_it_documents() -> None:
    assert all(name.startswith("assert_") and callable(getattr(pytest_plugin, name)) for name in pytest_plugin.__all__)
