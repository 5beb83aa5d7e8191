"""``maskport diff``: from two files to what changed and an exit code."""

from __future__ import annotations

from pathlib import Path

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
