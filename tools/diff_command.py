"""``maskport diff``: from two files to what changed and an exit code."""

from __future__ import annotations

from pathlib import Path

from ..runtime.model_file import look
from .committed import committed
from .reading import read_attention
from .screen import Screen


def diff_command(screen: Screen, old: Path, new: Path, as_json: bool) -> int:
    """Compare two files and show what changed.

    Returns
    -------
    int
        1 if any attention is not the same, was removed or added, or is no longer understood; else 0.

    Raises
    ------
    MaskportError
        If a file can't be read.
    """
    with screen.progress(f"Inspect {old.name} and {new.name}"):
        before, after = read_attention(old), read_attention(new)
    from .mask_diff import diff

    found = diff(before, after)
    if as_json:
        screen.json(found.to_json())
    else:
        from .diff_table import print_diff

        print_diff(screen, found)
    return int(found.changed)


def diff_committed(screen: Screen, model: Path, revision: str, as_json: bool) -> int:
    """Compare a file as it was committed with what it is now, and show what changed.

    Returns
    -------
    int
        As of :func:`diff_command`; 0 if the revision doesn't have the file.

    Raises
    ------
    MaskportError
        If a file can't be read, or there is no such revision.
    """
    look(model)
    with committed(model, revision) as before:
        if before is not None:
            return diff_command(screen, before, model, as_json)
    if as_json:
        screen.json({"format": 1, "old": None, "new": model.name, "changed": False})
    else:
        screen.out.print(f"{model} is new since {revision}: there is nothing to compare.", markup=False, soft_wrap=True)
    return 0
