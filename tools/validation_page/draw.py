"""``maskport validate --html``: what its page says beside the verdict, gathered when that is known."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...export.load_model import load_model
from ...export.proof.side import Place
from ...models.masks import Mask
from ..child.place import ChildPlace
from ..parity.repro import SCRIPT, Failing
from ..screen import Screen
from ..seen.attention import see_attention
from ..seen.cells import SeenAttention
from ..validation_asked import Asked
from ..verdict import Verdict
from .page import Told, write_page

# About as many tokens as are changed.
TOKENS = 24


def draw_validation(
    screen: Screen,
    verdict: Verdict,
    candidate: Path,
    asked: Asked,
    path: Path,
    reference: Any = None,
    examples: Any = None,
    failing: Failing | None = None,
) -> None:
    """Look at the candidate's attention, and write the page.

    Parameters
    ----------
    verdict, candidate, asked
        What was found, of what.
    path
        Of the page.
    reference, examples
        An .onnx file, or a module and its inputs; None without one.
    failing
        The smallest case that fails.
    """
    with screen.progress("Look at attention", TOKENS) as advance:
        place = ChildPlace.on(asked.device, asked.timeout)
        try:
            seen = _seen(candidate, asked, reference, examples, place, lambda: advance())
        except Exception as error:
            # Pictures decide nothing: a file that can't be looked at has its verdict all the same.
            seen = SeenAttention("", notes=(f"nothing could be seen: {type(error).__name__} {error}",))
    script = asked.repro / SCRIPT if asked.repro is not None and failing is not None else None
    told = Told(str(candidate), asked.against, command_of(candidate, asked), asked.seed, seen, failing, script)
    write_page(verdict, told, path)


def _seen(
    candidate: Path, asked: Asked, reference: Any, examples: Any, place: Place, on_run: Callable[[], None]
) -> SeenAttention:
    expect: str | Mask | None = asked.expect
    held = reference
    if expect is None and reference is not None and not isinstance(reference, Path | str):
        from ..parity.eager_reference import EagerReference

        graph = load_model(candidate)[0].graph
        eager = EagerReference(reference, examples, [str(value.name) for value in graph.outputs])
        known = {str(value.name) for value in graph.inputs}
        held = eager.run
        # One mask is that of every self-attention; of several it is not known whose each is.
        if len(eager.masks) == 1 and known >= set(eager.masks[0].tensors):
            expect = eager.masks[0]
    return see_attention(candidate, expect, held, seed=asked.seed, place=place, on_run=on_run)


def command_of(candidate: Path, asked: Asked) -> str:
    """Return the command line that does the same again."""
    options: list[tuple[str, object, object]] = [
        ("--against", asked.against, None),
        ("--inputs", asked.inputs, None),
        ("--expect", asked.expect, None),
        ("--device", asked.device, "cpu"),
        *(("--tolerance", tolerance, None) for tolerance in asked.tolerances),
    ]
    words = [word for name, value, default in options if value != default for word in (name, str(value))]
    return shlex.join(
        [
            "maskport",
            "validate",
            str(candidate),
            *words,
            *(["--quick"] if asked.quick else []),
            "--seed",
            str(asked.seed),
        ]
    )
