"""All contracts of a file, in the order in which a person wants to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ...export.errors import ExportError, InspectError, ProofFailed
from ...export.load_model import load_model
from ...export.proof.side import TWIN
from ...models.masks import Mask
from ...runtime import DeviceUnavailable, MaskportError
from ..child import TIMEOUT
from ..child.place import ChildPlace
from ..errors import ToolError
from ..verdict import FAILED, NOT_RUN, TWINS, Contract, Verdict
from .baked import baked_sizes
from .batch import PATTERNS as BATCH_PATTERNS
from .batch import batch_invariance
from .claim import Claim, with_inputs
from .empty_rows import PATTERNS as EMPTY_PATTERNS
from .empty_rows import QUICK as QUICK_EMPTY
from .empty_rows import empty_rows
from .expected import as_expected, declared, parse_expected
from .inputs import inputs_matter
from .lengths import lengths_free
from .prefix import prefix
from .repeatable import repeatable
from .subject import Model, Subject
from .token_contracts import PATTERNS as TOKEN_PATTERNS
from .token_contracts import QUICK, TokenContracts
from .weights import nan_weights


def contracts_of(
    model: Model,
    expect: str | Mask | None = None,
    *,
    quick: bool = False,
    seed: int = 0,
    device: str = "cpu",
    timeout: float = TIMEOUT,
    on_contract: Callable[[Contract], None] | None = None,
) -> Verdict:
    """Hold a file to what its masks mean, without a reference.

    It is run in a process of its own. On the CPU operators that are for CUDA alone are stood in for by their executable
    twins.

    Parameters
    ----------
    model : path, bytes or onnx_ir.Model
        By any exporter. It is not changed.
    expect : Mask or str, optional
        The mask that its self-attention must have, such as ``"causal & padding(attention_mask)"``; by default each
        attention is held to the mask that is read from its own graph.
    quick : bool
        Whether to change tokens in one padding pattern alone.
    seed : int
        Of everything that is drawn.
    device : str
        Where it is run, as of :class:`maskport.runtime.Session`.
    timeout : float
        The longest that one run may take, in seconds.
    on_contract : callable, optional
        Called with each contract when it is done.

    Returns
    -------
    Verdict
        ``ok`` is true only if something was perturbed, and nothing moved that must not.

    Raises
    ------
    ToolError
        If it is no ONNX model, or `expect` is no mask of its inputs.
    DeviceUnavailable, InputError
        If the device can't be used; nothing is run elsewhere instead.

    Examples
    --------
    >>> contracts_of("decoder.onnx", "causal & padding(attention_mask)").ok  # doctest: +SKIP
    True
    """
    found: list[Contract] = []

    def add(contracts: Iterable[Contract]) -> None:
        for contract in contracts:
            found.append(contract)
            if on_contract is not None:
                on_contract(contract)

    place = ChildPlace.on(device, timeout)
    try:
        subject = Subject.of(model, seed, place)
    except InspectError as error:
        raise ToolError(str(error)) from error
    except ProofFailed as error:
        if isinstance(error.__cause__, DeviceUnavailable):
            raise error.__cause__ from error
        # It may take other values than those that are drawn: that alone is no fault.
        why = str(error).replace("the source itself", "the file")
        baked = None if place.crashes else _baked(model, place)
        add([*_crashes(place), baked or Contract("contracts", NOT_RUN, why=why)])
        return Verdict((), tuple(found), {}, reference=False)
    except ExportError as error:
        # What it says of itself is damaged, or of another version.
        raise ToolError(str(error)) from error
    add(nan_weights(subject.model))
    claims: Sequence[Claim] = subject.claims
    if expect is not None:
        mask = parse_expected(str(expect), subject)
        add(as_expected(subject, mask))
        claims = declared(subject, mask)
    add(contracts_of_claims(subject, claims, quick))
    if subject.side.checked == TWIN:
        add([TWINS])
    add(_crashes(place))
    return Verdict((), tuple(found), {}, reference=False)


def _suspect(subject: Subject) -> tuple[str, int] | None:
    """Return the line of the first attention whose mask isn't the promised one; None where all are."""
    for claim in subject.claims:
        read = subject.read.get(claim.name)
        if claim.name in subject.sources and read is not None and read != claim.mask:
            return subject.sources[claim.name]
    return None


def _crashes(place: ChildPlace) -> list[Contract]:
    """Return how the file ended its process, which no contract may pass over."""
    if not place.crashes:
        return []
    more = f", and {len(place.crashes) - 1} times more" if len(place.crashes) > 1 else ""
    return [Contract("no-crash", FAILED, float(len(place.crashes)), why=f"{place.crashes[0]}{more}")]


def _baked(model: Model, place: ChildPlace) -> Contract | None:
    try:
        return baked_sizes(load_model(model)[0], place)
    except MaskportError:
        return None


def contracts_of_claims(subject: Subject, claims: Sequence[Claim], quick: bool = False) -> Iterator[Contract]:
    """Hold a file to given claims, one contract after the other."""
    subject = subject.promised(with_inputs(claims, subject.layout))
    same = repeatable(subject)
    yield same
    if same.status == FAILED:
        # Nothing that moves can be told from what moves by itself.
        return
    patterns = (QUICK_EMPTY, QUICK, ("right",)) if quick else (EMPTY_PATTERNS, TOKEN_PATTERNS, BATCH_PATTERNS)
    yield from empty_rows(subject, patterns[0])
    for contract in TokenContracts(subject, patterns[1]).run():
        yield replace(contract, source=_suspect(subject)) if contract.status == FAILED else contract
    yield batch_invariance(subject, patterns[2])
    yield prefix(subject)
    yield from inputs_matter(subject)
    yield lengths_free(subject)
