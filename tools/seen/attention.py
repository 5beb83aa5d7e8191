"""Which tokens a file's rows do depend on, beside those that its masks let through: measured, cell by cell."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ...export.cases.draw import Case, Size
from ...export.cases.layout import Label
from ...export.check.backend import BackendError
from ...export.errors import InspectError, ProofFailed
from ...export.proof.side import HERE, Place
from ...models.masks import Mask
from ..contracts import noise
from ..contracts.claim import FAMILIES, Claim
from ..contracts.edges import Edges
from ..contracts.reach import Reach, attends, reach
from ..contracts.subject import Arrays, Model, Subject
from ..contracts.tokens import moved, redrawn
from ..errors import Refused, ToolError
from .cells import AGREES, EXTRA, FAINT, MISSING, NOT, UNKNOWN, Panel, Seen, SeenAttention
from .expected import Expected, Run, cast, expected_of
from .weights import Weights, weights_of

BATCH, LENGTH, OTHER, LONGEST, BEYOND = 3, 12, 7, 24, 3
# With padding on the right, on the left and anywhere in its rows; else what the file grants.
PADDED = ("mixed", "left", "right")
# As many seeds are looked through for a case in which few rows are padding.
SEEDS = 16
# How often tokens are drawn anew: a row that one of them doesn't move may be moved by the next.
TRIES = 3
# What moves rows by this much more than rounding is seen plainly; among what is, nothing is too faint to be seen.
PLAIN = 10


def see_attention(
    candidate: Model,
    expect: str | Mask | None = None,
    reference: Model | Run | None = None,
    *,
    seed: int = 0,
    place: Place = HERE,
    on_run: Callable[[], None] = lambda: None,
) -> SeenAttention:
    """Measure at a small size, with padding, what each row of a file depends on.

    Of the model as a whole, one token after the other is changed, and rows that move are seen to depend on it. Of an
    attention that is written as a Softmax and a product, the weights are read from the graph, over all heads.

    Parameters
    ----------
    candidate
        Path or bytes of an ONNX file.
    expect
        The mask that is expected of its self-attention.
    reference
        If `expect` is not given: the file whose masks are expected, or what runs a reference that has none to be read,
        of which the same is measured. By default the masks that are read from the candidate are expected, with the
        padding that its inputs declare.
    seed
        Of everything that is drawn.
    place
        Where files are run.
    on_run
        Called after each token.

    Returns
    -------
    SeenAttention
        Its notes tell what could not be seen; nothing is raised.
    """
    try:
        expected = expected_of(Subject.of(candidate, seed, place), expect, reference, place)
    except (InspectError, ProofFailed, ToolError) as error:
        return SeenAttention("", notes=(f"nothing could be seen: {error}",))
    weights, notes = weights_of(expected.own, place)
    claims = _claims(expected, weights)
    found: dict[tuple[str, Label, Label], list[Panel]] = {}
    far = max(max(Edges(subject).reach, default=0) for subject in (expected.own, expected.subject))
    for case, count in _cases(expected.subject, far):
        try:
            for key, panels in (*_through_all(expected, case, on_run), *_of_each(expected, claims, case, weights)):
                found.setdefault(key, []).extend(panels[:count])
        except (BackendError, Refused) as error:
            notes.append(f"not seen at {case.name}: {error}")
    if far + BEYOND > LONGEST:
        notes.append(f"the windows of all layers reach {far} tokens together: where they end is not in the picture")
    if not found and not notes:
        notes.append("no output has an axis of tokens, and no attention is over one")
    return SeenAttention(expected.told, tuple(_joined(found, claims)), tuple(notes))


def _cases(subject: Subject, far: int) -> Iterator[tuple[Case, int]]:
    """Yield one case without padding and one with, each with how many rows of its batch are shown.

    Where windows reach as far as `far` together, the case is longer, unless it would be too long to be drawn.
    """
    size = Size(BATCH, max(LENGTH, far + BEYOND) if far + BEYOND <= LONGEST else LENGTH, OTHER)
    layout = subject.layout
    masked = any(value.role in ("mask", "packing") for value in layout.inputs.values())
    # Masks of another kind are drawn for any pattern but the first.
    choices: list[tuple[tuple[str, ...], int]] = [(("ones",), 1)] if layout.masks or not masked else []
    choices += [(PADDED if layout.masks else ("holes",), BATCH)] if masked else []
    for patterns, count in choices:
        drawn = (_clearest(subject, size, pattern) for pattern in patterns)
        case = next((case for case in drawn if case is not None), None)
        if case is not None:
            yield case, count


def _clearest(subject: Subject, size: Size, pattern: str) -> Case | None:
    """Return the case of some seeds whose rows are padded, if any are, by a third; None if it isn't granted."""
    drawn = (replace(subject, seed=subject.seed + more).draw(size, pattern) for more in range(SEEDS))

    def clear(case: Case) -> tuple[bool, float]:
        parts = [real.mean(axis=1) for real in case.rows.real.values()]
        farthest = max((float(np.abs(part - 2 / 3).max()) for part in parts), default=0.0)
        return all((part < 1).all() for part in parts), -farthest

    return max((case for case in drawn if case is not None), key=clear, default=None)


Key = tuple[str, Label, Label]


def _through_all(expected: Expected, case: Case, on_run: Callable[[], None]) -> Iterator[tuple[Key, list[Panel]]]:
    """Yield for each pair of axes which rows move with which tokens."""
    subject = expected.subject
    before = subject.run(case.inputs)
    case = subject.told(case, before)
    may = reach(subject, case, before, FAMILIES["mask"])
    known = subject.promised([claim for claim in subject.claims if claim.known])
    must, direct = reach(known, case, before, FAMILIES["mask"]), _direct(known, case, before)
    limit = noise.same_shape(before)
    for tokens in subject.layout.tokens:
        readable = {rows: must[rows, tokens] & _valid(case, rows) for rows in subject.layout.tokens}
        ours, changed = _moves(subject, subject.run, case, before, tokens, readable, on_run)
        theirs = None
        if expected.run is not None:
            reference = expected.run(case.inputs)
            theirs, _ = _moves(subject, expected.run, case, reference, tokens, {}, lambda: None)
        for rows, apart in ours.items():
            compared = _valid(case, rows) & changed[:, None]
            allowed, asked = may[rows, tokens], must[rows, tokens]
            if theirs is not None:
                allowed, asked = theirs[rows] > 0, theirs[rows] > noise.same_shape(reference)
                plain = theirs[rows] > PLAIN * limit
            else:
                plain = _plain(apart, asked & compared, direct[rows, tokens], PLAIN * limit)
            seen = np.where(allowed, apart > 0, apart > limit)
            yield ("", rows, tokens), _panels(case, rows, tokens, _cells(allowed, asked, seen, compared, plain))


def _valid(case: Case, rows: Label) -> np.ndarray:
    """Return which rows are compared: bool [B, R, 1]."""
    return (case.rows.real[rows] & case.rows.has_key[rows])[..., None]


def _direct(subject: Subject, case: Case, before: Arrays) -> Reach:
    """Return which tokens rows attend in one step: bool [B or 1, R, T] for each pair of axes."""
    found: Reach = {}
    for rows, tokens in itertools.product(subject.layout.tokens, repeat=2):
        own = np.eye(case.sizes[rows], case.sizes[tokens], dtype=bool)[None] & (rows == tokens)
        masks = [claim.mask for claim in subject.claims if (claim.queries, claim.keys) == (rows, tokens)]
        found[rows, tokens] = sum((attends(subject, case, before, mask, rows, tokens) for mask in masks), own)
    return found


def _plain(apart: np.ndarray, asked: np.ndarray, direct: np.ndarray, least: float) -> np.ndarray:
    """Return where what must be attended would be seen: what is attended in as many steps moves rows plainly."""
    plain = np.zeros(asked.shape, bool)
    for steps in (direct, ~direct):
        moves = apart[asked & steps & (apart > 0)]
        plain |= steps & bool(moves.size and moves.min() > least)
    return plain


def _moves(
    subject: Subject,
    run: Run,
    case: Case,
    before: Arrays,
    tokens: Label,
    asked: dict[Label, np.ndarray],
    on_run: Callable[[], None],
) -> tuple[dict[Label, np.ndarray], np.ndarray]:
    """Return how far rows move with each token [B, R, T] by their axis, and which tokens were changed [B, T].

    A token is not drawn again if all rows that are `asked` to move with it did.
    """
    layout = subject.layout
    batch, length = case.sizes.get(layout.batch, 1), case.sizes[tokens]
    changed = np.zeros((batch, length), bool)
    apart: dict[Label, np.ndarray] = {}
    for place in range(length):
        where = np.broadcast_to(np.arange(length) == place, (batch, length))
        for attempt in range(TRIES):
            other = redrawn(subject, case, {tokens: where}, seed=attempt + 1)
            if not other.changed[tokens].any():
                continue
            after = run(other.case.inputs)
            if any(
                name in after and not np.array_equal(before[name], after[name]) for name in subject.interface.hidden
            ):
                # What a mask reads is another: that is no other token.
                continue
            changed |= other.changed[tokens]
            for rows in layout.tokens:
                found = list(moved(subject, rows, before, after).values())
                if found:
                    full = apart.setdefault(rows, np.zeros((batch, case.sizes[rows], length)))
                    full[..., place] = np.max([full[..., place], *found], axis=0)
            if asked and all((full > 0)[..., place][asked[rows][..., place]].all() for rows, full in apart.items()):
                break
        on_run()
    return apart, changed


def _of_each(
    expected: Expected, claims: dict[str, Claim], case: Case, weights: Weights
) -> Iterator[tuple[Key, list[Panel]]]:
    """Yield of each attention which pairs have a weight, for any of some tokens that are drawn."""
    subject = expected.subject
    before = subject.run(case.inputs)
    case = subject.told(case, before)
    batch = case.sizes.get(subject.layout.batch, 1)
    anew = {label: np.ones_like(real) for label, real in case.rows.real.items()}
    seen: dict[str, np.ndarray] = {}
    for attempt in range(TRIES):
        inputs = redrawn(subject, case, anew, seed=attempt + 1).case.inputs if attempt else case.inputs
        for name, pairs in weights.of(cast(expected.own, inputs), batch).items():
            seen[name] = seen.get(name, False) | pairs
    for name, claim in claims.items():
        if name not in seen or not claim.known or not {claim.queries, claim.keys} <= set(subject.layout.tokens):
            continue
        mask = attends(subject, case, before, claim.mask, claim.queries, claim.keys)
        real = case.rows.real[claim.queries]
        if seen[name].shape != (*real.shape, case.sizes[claim.keys]):
            continue
        mask = np.broadcast_to(mask, seen[name].shape)
        compared = np.broadcast_to((real & mask.any(axis=2))[..., None], mask.shape)
        cells = _cells(mask, mask, seen[name], compared, np.True_)
        yield (name, claim.queries, claim.keys), _panels(case, claim.queries, claim.keys, cells)


def _claims(expected: Expected, weights: Weights) -> dict[str, Claim]:
    """Return what is expected of each attention that has weights.

    Those of a reference are told by name; the others of both, if they are as many, in their order: one of the file that
    was not understood is named by its node.
    """
    theirs = {claim.name: claim for claim in expected.subject.claims}
    found = {name: theirs[name] for name in weights.names if name in theirs}
    ours = [name for name in weights.names if name not in found]
    others = [claim for name, claim in theirs.items() if name not in found]
    return found | (dict(zip(ours, others, strict=True)) if len(ours) == len(others) else {})


def _cells(
    allowed: np.ndarray, asked: np.ndarray, seen: np.ndarray, compared: np.ndarray, plain: np.ndarray | np.bool
) -> np.ndarray:
    unseen = np.where(asked, np.where(plain, MISSING, FAINT), NOT)
    return np.where(compared, np.where(seen, np.where(allowed, AGREES, EXTRA), unseen), UNKNOWN)


def _panels(case: Case, rows: Label, tokens: Label, cells: np.ndarray) -> list[Panel]:
    down, across = case.rows.real[rows], case.rows.real[tokens]
    return [Panel(_title(case, row, across[row]), cells[row], down[row], across[row]) for row in range(len(cells))]


def _title(case: Case, row: int, real: np.ndarray) -> str:
    if real.all():
        return "no padding" if case.pattern == "ones" else f"row {row}"
    if not real.any():
        return f"row {row}: all is padding"
    first, last = np.flatnonzero(real)[[0, -1]]
    side = "here and there" if not real[first : last + 1].all() else "left" if last == len(real) - 1 else "right"
    return f"row {row}: padding {side}"


def _joined(found: dict[Key, list[Panel]], claims: dict[str, Claim]) -> Iterator[Seen]:
    """Yield what was seen, the model as a whole first, attentions that are alike together."""
    alike: dict[tuple[Mask | None, Label, Label, tuple[bytes, ...]], list[str]] = {}
    for (name, rows, tokens), panels in found.items():
        mask = claims[name].mask if name else None
        alike.setdefault((mask, rows, tokens, tuple(panel.cells.tobytes() for panel in panels)), []).append(name)
    for (mask, rows, tokens, _), names in sorted(alike.items(), key=lambda item: item[0][0] is not None):
        shown = tuple(found[names[0], rows, tokens])
        yield Seen(tuple(name for name in names if name), mask, str(rows), str(tokens), shown)
