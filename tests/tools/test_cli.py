"""The command line: exit codes and messages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from maskport.export.errors import ExportError
from maskport.runtime.errors import ModelError
from maskport.tools import cli, demo
from typer.testing import CliRunner

invoke = CliRunner().invoke


def test_help_and_version() -> None:
    assert "demo" in invoke(cli.app, ["--help"]).output
    shown = invoke(cli.app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, "maskport 0.1.0\n")


def test_bad_arguments_exit_with_2() -> None:
    assert invoke(cli.app, ["no-such-command"]).exit_code == 2
    assert invoke(cli.app, ["demo", "--no-such-option"]).exit_code == 2


@pytest.mark.parametrize(("agreed", "code"), [(True, 0), (False, 1)])
def test_the_demo_exits_with_its_verdict(
    agreed: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders: list[Path] = []
    monkeypatch.setattr(demo, "run", lambda folder, screen: folders.append(folder) or agreed)
    assert invoke(cli.app, ["demo", "--folder", str(tmp_path)]).exit_code == code
    assert folders == [tmp_path]


def test_a_missing_package_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "NEEDS", {"no_such_package": "pip install no-such-package"})
    monkeypatch.setattr(sys, "argv", ["maskport", "demo"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr() == ("", "maskport: the demo needs no_such_package; pip install no-such-package\n")


@pytest.mark.parametrize("error", [ModelError("no model"), ExportError("no export")])
def test_expected_errors_are_messages(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(folder: Path, screen: object) -> bool:
        raise error

    monkeypatch.setattr(demo, "run", fail)
    monkeypatch.setattr(sys, "argv", ["maskport", "demo"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == f"maskport: {error}\n"
