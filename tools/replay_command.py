"""``maskport validate --replay``: from its arguments to what is printed and written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..runtime.model_file import look
from .child.session import ChildSession
from .errors import ToolError
from .given_reference import given_reference
from .inputs import read_inputs
from .replaying.replay import Replay, replay
from .screen import Screen


def replay_command(
    screen: Screen,
    model: Path,
    against: str | None,
    inputs: Path | None,
    device: str,
    timeout: float,
    unfit: Mapping[str, bool],
) -> Replay:
    """Repeat the certificate of a file, with progress.

    Parameters
    ----------
    unfit
        Options that go with a comparison of its own kind alone, and whether each was given.

    Raises
    ------
    MaskportError, ExportError
        If the certificate, a file or the inputs can't be read, or an option was given that doesn't go with a replay.
    """
    if given := [name for name, was_given in unfit.items() if was_given]:
        raise ToolError(f"--replay repeats what the certificate says; leave out {given[0]}")
    look(model)
    examples: Any = None if inputs is None else read_inputs(inputs, ChildSession(model, timeout=timeout))
    reference: Any = None
    if against is not None:
        reference, examples = given_reference(screen, against, examples)
    with screen.progress(f"Repeat the certificate of {model.name}"):
        return replay(model, reference, examples, device=device, timeout=timeout)


def show(screen: Screen, replayed: Replay, model: Path, form: str) -> None:
    """Print what was claimed and what was found, as text, JSON, or text and annotations."""
    if form == "json":
        screen.json(replayed.to_json())
        return
    from .replaying.table import claim_text, note, replay_conclusion, replay_table
    from .verdict_table import findings_table

    screen.out.print(claim_text(replayed))
    screen.out.print()
    screen.out.print(replay_table(replayed))
    screen.out.print(f"[dim]{note(replayed)}[/]")
    screen.out.print()
    screen.out.print(findings_table(replayed.verdict))
    screen.out.print(replay_conclusion(replayed, str(model)), soft_wrap=True)
    if form == "github":
        from .annotations import verdict_annotations

        screen.lines(verdict_annotations(replayed.verdict, model))
