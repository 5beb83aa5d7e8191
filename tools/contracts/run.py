"""All contracts of a file, in the order in which a person wants to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ...export.errors import ProofFailed
from ...export.inspector import InspectError, load_model
from ...models.masks import Mask
from ...runtime import MaskportError
from ..errors import ToolError
from ..verdict import FAILED, NOT_RUN, Contract, Verdict
from .baked import baked_sizes
from .batch import PATTERNS as BATCH_PATTERNS
from .batch import batch_invariance
from .claim import Claim, with_inputs
from .empty_rows import empty_rows
from .expected import as_expected, declared, parse_expected
from .inputs import inputs_matter
from .lengths import lengths_free
from .prefix import prefix
from .repeatable import repeatable
from .subject import Model, Subject
from .token_contracts import PATTERNS as TOKEN_PATTERNS
from .token_contracts import QUICK, TokenContracts


def contracts_of(
    model: Model,
    expect: str | Mask | None = None,
    *,
    quick: bool = False,
    seed: int = 0,
    on_contract: Callable[[Contract], None] | None = None,
) -> Verdict:
    """Hold a file to what its masks mean, without a reference.

    It is run on the CPU; operators that are for CUDA alone are stood in for by their executable twins.

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

    try:
        subject = Subject.of(model, seed)
    except InspectError as error:
        raise ToolError(str(error)) from error
    except ProofFailed as error:
        # It may take other values than those that are drawn: that alone is no fault.
        why = str(error).replace("the source itself", "the file")
        add([_baked(model) or Contract("contracts", NOT_RUN, why=why)])
        return Verdict((), tuple(found), {}, reference=False)
    claims: Sequence[Claim] = subject.claims
    if expect is not None:
        mask = parse_expected(str(expect), subject)
        add(as_expected(subject, mask))
        claims = declared(subject, mask)
    add(contracts_of_claims(subject, claims, quick))
    return Verdict((), tuple(found), {}, reference=False)


def _suspect(subject: Subject) -> tuple[str, int] | None:
    """Return the line of the first attention whose mask isn't the promised one; None where all are."""
    for claim in subject.claims:
        read = subject.read.get(claim.name)
        if claim.name in subject.sources and read is not None and read != claim.mask:
            return subject.sources[claim.name]
    return None


def _baked(model: Model) -> Contract | None:
    try:
        return baked_sizes(load_model(model)[0])
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
    yield from empty_rows(subject)
    patterns = (QUICK, ("right",)) if quick else (TOKEN_PATTERNS, BATCH_PATTERNS)
    for contract in TokenContracts(subject, patterns[0]).run():
        yield replace(contract, source=_suspect(subject)) if contract.status == FAILED else contract
    yield batch_invariance(subject, patterns[1])
    yield prefix(subject)
    yield from inputs_matter(subject)
    yield lengths_free(subject)
