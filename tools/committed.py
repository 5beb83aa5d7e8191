"""A file as it was committed: what `maskport diff --git` compares with."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .errors import ToolError

__all__ = ["committed"]

PLACES = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_WORK_TREE")


@contextlib.contextmanager
def committed(path: Path, revision: str) -> Iterator[Path | None]:
    """Give a copy of a file as it is in a revision of its repository; None if that doesn't have it.

    The files beside it that hold its weights are given with it, and what Git LFS holds is fetched.

    Parameters
    ----------
    path
        A file in a working tree of git.
    revision
        As git takes it: ``HEAD``, ``main~2``, ``v1.0``.

    Raises
    ------
    ToolError
        If git isn't installed, `path` is in no working tree, or there is no such revision.
    """
    if shutil.which("git") is None:
        raise ToolError("--git needs git, which is not installed; give two files instead")
    tree = _git(path, "rev-parse", "--show-toplevel")
    if tree.returncode:
        said = tree.stderr.decode(errors="replace").strip()
        raise ToolError(f"{path} is in no working tree of git ({said}); give two files instead of --git")
    if _git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").returncode:
        # A repository without a commit has no HEAD.
        if revision != "HEAD":
            top = tree.stdout.decode().strip()
            raise ToolError(f"--git is {revision!r}, which is no revision of {top}; git log lists them")
        yield None
        return
    if _git(path, "cat-file", "-e", f"{revision}:./{path.name}").returncode:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        _copy(path, revision, path.name, copy)
        for name in _external(copy):
            data = Path(folder, name)
            inside = data.resolve().is_relative_to(Path(folder).resolve())
            # What lies elsewhere, or isn't there, is told by who reads the model.
            if inside and not _git(path, "cat-file", "-e", f"{revision}:./{name}").returncode:
                data.parent.mkdir(parents=True, exist_ok=True)
                _copy(path, revision, name, data)
        yield copy


def _external(model: Path) -> set[str]:
    """Return the files that hold a model's weights, by their paths from its folder."""
    import onnx_ir as ir

    try:
        values = ir.load(model).graph.initializers.values()
    except Exception:
        # That it is no model is told by who reads it.
        return set()
    return {str(value.const_value.location) for value in values if isinstance(value.const_value, ir.ExternalTensor)}


def _copy(path: Path, revision: str, name: str, target: Path) -> None:
    with target.open("wb") as file:
        done = _git(path, "cat-file", "--filters", f"{revision}:./{name}", to=file)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise ToolError(f"git can't give {name} of {revision}: {said}")


def _git(path: Path, *arguments: str, to: IO[bytes] | int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    # In a hook git says by these where it is, relative to another folder than the file's.
    environment = {name: value for name, value in os.environ.items() if name not in PLACES}
    return subprocess.run(["git", *arguments], cwd=path.parent, stdout=to, stderr=subprocess.PIPE, env=environment)
