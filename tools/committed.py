"""A file as it was committed: what `maskport diff --git` compares with."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import ToolError

__all__ = ["committed"]

PLACES = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_WORK_TREE")


@contextlib.contextmanager
def committed(path: Path, revision: str) -> Iterator[Path | None]:
    """Give a copy of a file as it is in a revision of its repository; None if that doesn't have it.

    What Git LFS holds is fetched. Weights in a file beside the model are not: masks can be read without them.

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
    blob = f"{revision}:./{path.name}"
    if _git(path, "cat-file", "-e", blob).returncode:
        yield None
        return
    found = _git(path, "cat-file", "--filters", blob)
    if found.returncode:
        raise ToolError(f"git can't give {blob}: {found.stderr.decode(errors='replace').strip()}")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        copy.write_bytes(found.stdout)
        yield copy


def _git(path: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # In a hook git says by these where it is, relative to another folder than the file's.
    environment = {name: value for name, value in os.environ.items() if name not in PLACES}
    return subprocess.run(["git", *arguments], cwd=path.parent, capture_output=True, env=environment)
