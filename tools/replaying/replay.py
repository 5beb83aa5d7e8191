"""Does again what the certificate of a file says was done, and compares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...export.cases.draw import Case, draw_case, is_float
from ...export.cases.parity import Tolerance
from ...export.cases.rows import VALID
from ...export.certificate.claim import Certificate, ClaimedCase, all_sizes
from ...export.certificate.digest import digest_of
from ...export.certificate.drawn_case import checksum, fingerprint_of
from ...export.certificate.drawn_from import DrawnFrom
from ...export.certificate.fingerprint import Fingerprint
from ...export.check.backend import BackendError
from ...export.check.checked import versions
from ...export.errors import ExportError, InspectError, ProofFailed
from ...export.load_model import load_model
from ...export.optimizer import HALF
from ...export.proof.by_row import by_row
from ...export.proof.candidate import Candidate
from ...export.proof.compare import Apart, compare, with_rows
from ...export.proof.interface import Interface
from ...export.proof.runs import MARKED, Runs, marked, named
from ...export.proof.side import CPU, Place, Side, side_of
from ...runtime.model_file import look
from ..child import TIMEOUT
from ..child.place import ChildPlace
from ..errors import Refused, ToolError
from ..verdict import FAILED, NOT_RUN, OK, Check, Contract, Verdict

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch import nn

File = str | os.PathLike[str] | bytes
Arrays = dict[str, np.ndarray]
EXAMPLE = "example"
NO_ROW = "it ran, and no row of it is valid: there is nothing to compare"
EARLIER = "the certificate is of an earlier release, which did not write how to draw it again"


@dataclass(frozen=True)
class Replay:
    """What a certificate claims, and what came of doing it again.

    Attributes
    ----------
    certificate
        As it was read.
    verdict
        The checks of the cases that could be run again, and the contracts ``certificate/digest``,
        ``certificate/versions`` and ``certificate/cases``; whatever could not be run is a contract that was not run.
    """

    certificate: Certificate
    verdict: Verdict

    @property
    def ok(self) -> bool:
        """Whether the file is the one that was checked, some case was repeated, and all that were agree."""
        return self.verdict.ok

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as a dict of JSON's types, with what was claimed."""
        claimed = {
            "how": self.certificate.how,
            "against": self.certificate.against,
            "seed": self.certificate.seed,
            "cases": [{"name": case.name, "error": case.error} for case in self.certificate.cases],
            "versions": self.certificate.versions,
        }
        return self.verdict.to_json() | {"claimed": claimed}


def replay(
    model: File,
    against: nn.Module | File | None = None,
    example_inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    device: str = "cpu",
    timeout: float = TIMEOUT,
    on_case: Callable[[str], None] | None = None,
) -> Replay:
    """Run the cases that a file's ``maskport.certificate`` tells, and compare.

    The cases are drawn from the certificate; a checksum tells whether they came out as they were. Without a reference
    the valid rows of each output are compared by the fingerprints that the certificate keeps of the reference's.

    Parameters
    ----------
    model
        Path or bytes of the file.
    against
        What it was made from: the module, or the source file of an optimized one.
    example_inputs
        Of the module: tensors by name, or in the order of its ``forward``'s parameters. Of a file: arrays by name. The
        file doesn't hold them: without them the case of the example is not repeated.
    device
        Where the file is run. A reference file is run on the CPU.
    timeout
        The longest that one run may take, in seconds: each file is run in a process of its own.
    on_case
        Called with the name of each case, before it runs.

    Raises
    ------
    CertificateError
        If the file has no certificate, it is damaged, or it asks for more than a check of ours does.
    MaskportError, ExportError
        If a file can't be loaded.
    """
    loaded = _load(model)
    certificate = Certificate.read(loaded.metadata_props)
    contracts = [_digest(certificate, loaded), _versions(certificate)]
    left_out = [Contract(f"parity/{name}", NOT_RUN, why=f"left out then: {why}") for name, why in certificate.not_run]
    if certificate.drawn_from is None:
        not_run = [Contract(f"parity/{case.name}", NOT_RUN, why=EARLIER) for case in certificate.cases]
        contracts.append(Contract("certificate/cases", NOT_RUN, why=EARLIER if not_run else "nothing was checked then"))
        return Replay(certificate, Verdict((), (*contracts, *not_run, *left_out), {}, against is not None))
    places = ChildPlace.on(device, timeout), ChildPlace.on("cpu", timeout)
    try:
        repeating = _Repeating.of(loaded, certificate, certificate.drawn_from, against, example_inputs, places)
    except ProofFailed as error:
        raise ToolError(str(error)) from error
    for claimed in certificate.cases:
        if on_case is not None:
            on_case(claimed.name)
        repeating.repeat(claimed)
    contracts.append(repeating.outcome())
    verdict = Verdict(
        tuple(repeating.checks),
        (*contracts, *repeating.not_run, *left_out),
        repeating.tolerances,
        repeating.reference is not None,
    )
    return Replay(certificate, verdict)


class _Repeating:
    """The cases so far."""

    def __init__(
        self,
        certificate: Certificate,
        drawn_from: DrawnFrom,
        candidate: Candidate,
        reference: Side | None,
        examples: Arrays | None,
        hidden: Sequence[str],
    ) -> None:
        self.certificate, self.drawn_from = certificate, drawn_from
        self.candidate, self.reference, self.examples = candidate, reference, examples
        axes = {name: drawn_from.hidden[name] for name in hidden}
        self.interface = Interface(drawn_from.layout, drawn_from.examples, axes, lone=drawn_from.lone)
        self.checks: list[Check] = []
        self.not_run: list[Contract] = []
        self.tolerances: dict[str, tuple[float, str]] = {}

    @classmethod
    def of(
        cls,
        model: ir.Model,
        certificate: Certificate,
        drawn_from: DrawnFrom,
        against: nn.Module | File | None,
        example_inputs: Mapping[str, Any] | Sequence[Any] | None,
        places: tuple[Place, Place],
    ) -> _Repeating:
        """Load both sides, the candidate at the first place and a reference file at the second.

        Raises
        ------
        ToolError
            If their inputs or outputs differ, or the certificate's.
        """
        dtype = (certificate.optimized or {}).get("dtype")
        candidate = Candidate.of(model, "", dtype, dtype in HALF, places[0])
        # What the file allows itself counts where it is less than what this release allows.
        allowed = {
            name: replace(tolerance, value=min(tolerance.value, certificate.limits.get(name, tolerance.value)))
            for name, tolerance in candidate.tolerances.items()
        }
        candidate = replace(candidate, tolerances=allowed)
        outputs = [str(value.name) for value in model.graph.outputs]
        if set(outputs) != set(drawn_from.layout.outputs):
            raise ToolError(f"the file's outputs are {', '.join(outputs)}, and not those of its certificate")
        if against is None:
            examples = None if example_inputs is None else _arrays(example_inputs, drawn_from)
            return cls(certificate, drawn_from, candidate, None, examples, [])
        if isinstance(against, str | bytes | os.PathLike):
            source = _load(against)
            computed = {value.name for node in source.graph for value in node.outputs}
            hidden = [name for name in drawn_from.hidden if name in computed]
            reference = _from_file(source, hidden, set(outputs), drawn_from, places[1])
            examples = None if example_inputs is None else _arrays(example_inputs, drawn_from)
        else:
            from ..parity.eager_reference import EagerReference

            eager, hidden = EagerReference(against, example_inputs, outputs), []
            examples, reference = _arrays(eager.examples, drawn_from), _from_module(eager)
        made = cls(certificate, drawn_from, candidate, reference, examples, hidden)
        if drawn_from.lone:
            made.reference = by_row(reference, made.interface)
        return made

    def repeat(self, claimed: ClaimedCase) -> None:
        """Run one case again, or put down why not."""
        case = self._drawn(claimed)
        if isinstance(case, str):
            self.not_run.append(Contract(f"parity/{claimed.name}", NOT_RUN, why=case))
            return
        expected: Arrays = {}
        if self.reference is not None:
            try:
                expected = self.reference.run(case.inputs)
            except BackendError as error:
                why = f"the reference failed: {error}"
                self.not_run.append(Contract(f"parity/{claimed.name}", NOT_RUN, why=why))
                return
        elif self.drawn_from.hidden:
            name = next(iter(self.drawn_from.hidden))
            why = f"its rows are told by {name!r}, which the source computes; give --against"
            self.not_run.append(Contract(f"parity/{claimed.name}", NOT_RUN, why=why))
            return
        case = with_rows(case, self.interface, self.drawn_from.masks, expected)
        try:
            actual = self.candidate.run(case.inputs, case.name)
        except ProofFailed as error:
            self.checks.append(Check(f"parity/{case.name}", False, "error", 1.0, 0.0, VALID, why=str(error)))
            return
        found = list(
            self._against_reference(case, actual, expected) if expected else self._moved(claimed, case, actual)
        )
        if not found and not any(contract.name.startswith(f"parity/{claimed.name}") for contract in self.not_run[-1:]):
            why = NO_ROW if claimed.error is None else "the certificate has no fingerprint of it; give --against"
            self.not_run.append(Contract(f"parity/{claimed.name}", NOT_RUN, why=why))
        self.checks += found

    def _drawn(self, claimed: ClaimedCase) -> Case | str:
        """Draw a case again, or say why that can't be done."""
        if claimed.drawn is None:
            return EARLIER
        layout, sizes = self.drawn_from.layout, all_sizes(self.drawn_from, claimed.drawn)
        try:
            case = draw_case(
                layout,
                self.drawn_from.examples,
                () if self.certificate.optimized else self.drawn_from.masks,
                sizes,
                "ones" if claimed.drawn.pattern == EXAMPLE else claimed.drawn.pattern,
                self.certificate.seed,
            )
            if claimed.drawn.pattern == EXAMPLE:
                if self.examples is None:
                    return "the file doesn't hold the example; give it by --inputs, or the module by --against"
                case = replace(case, name=claimed.name, inputs=self.examples)
            else:
                case = replace(case, inputs=self.candidate.rounded(case.inputs))
                case = marked(case, layout, self.certificate.seed) if MARKED in claimed.name else case
                case = named(case, layout, case.pattern) if self.certificate.optimized else case
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ToolError(f"the file's certificate is damaged: {claimed.name!r} can't be drawn: {error}") from error
        if case.name != claimed.name or checksum(case.inputs) != claimed.drawn.inputs:
            if claimed.drawn.pattern == EXAMPLE:
                return "the example that was given is not the one of then"
            return "it is drawn otherwise by the releases of maskport and numpy that are installed here"
        return case

    def _against_reference(self, case: Case, actual: Arrays, expected: Arrays) -> Iterator[Check]:
        """Compare all rows with a reference's, by the rules that were kept then."""
        assert self.reference is not None
        rows, masks = self.certificate.padding_rows, self.drawn_from.masks
        runs = Runs(self.interface, self.reference, [self.candidate], masks, (), rows, self.certificate.seed)
        found, _ = runs.apart(self.candidate, case, actual, expected)
        for apart in found:
            # An export's padding rows were noted, and not held against it.
            if apart.rows == VALID or self.certificate.optimized:
                yield self._check(case, apart)
        self._note(expected, actual)

    def _check(self, case: Case, apart: Apart) -> Check:
        label = self._label(case, apart.output)
        if apart.limit == 0 and np.isinf(apart.error):
            return Check(label, False, "shape", 1.0, 0.0, VALID, why=apart.why)
        if apart.rows == VALID and apart.bad:
            return Check(label, False, "nan", float(apart.bad), 0.0, VALID)
        if np.isinf(apart.limit):
            return Check(label, apart.why is None, "non_finite", float(apart.bad), 0.0, apart.rows, apart.error)
        difference = None if apart.rows == VALID else apart.error
        return Check(label, apart.why is None, "max_abs", apart.error, apart.limit, apart.rows, difference)

    def _moved(self, claimed: ClaimedCase, case: Case, actual: Arrays) -> Iterator[Check]:
        """Compare the fingerprints of valid rows, and hold padding rows to zero where that was promised."""
        assert claimed.drawn is not None
        for name, then in claimed.drawn.outputs.items():
            found = self._print(case, name, then, actual[name])
            if isinstance(found, Check):
                yield found
            else:
                self.not_run.append(Contract(self._label(case, name), NOT_RUN, why=found))
        if self.certificate.padding_rows == "zero":
            for apart in compare(self.drawn_from.layout, case, actual, actual, "zero"):
                if apart.why is not None and apart.rows != VALID:
                    yield self._check(case, apart)
        self._note(actual, actual)

    def _print(self, case: Case, name: str, then: Fingerprint, actual: np.ndarray) -> Check | str:
        label = self._label(case, name)
        if actual.shape != then.shape:
            why = f"{list(actual.shape)}, it was {list(then.shape)}"
            return Check(label, False, "shape", 1.0, 0.0, VALID, why=why)
        now = fingerprint_of(self.drawn_from.layout, case, name, actual, actual.dtype)
        if now is None:
            bad = int((~np.isfinite(actual.astype(np.float64))).sum())
            return Check(label, False, "nan", float(bad), 0.0, VALID, why="or infinite; none was then")
        if then.count != now.count:
            return "which of its rows are valid is told otherwise by the release that is installed here"
        limit = self.candidate.tolerance(actual, actual).value * then.scale
        moved = then.moved(now)
        return Check(label, moved <= limit, "fingerprint", moved, limit, VALID)

    def _label(self, case: Case, output: str) -> str:
        return f"parity/{case.name}" + (f"/{output}" if len(self.drawn_from.layout.outputs) > 1 else "")

    def _note(self, expected: Arrays, actual: Arrays) -> None:
        for name in self.drawn_from.layout.outputs:
            tolerance: Tolerance = self.candidate.tolerance(actual[name], expected[name])
            self.tolerances[actual[name].dtype.name] = (tolerance.value, tolerance.why)

    def outcome(self) -> Contract:
        """Return the contract that sets what was claimed beside what was repeated."""
        total = len(self.certificate.cases)
        if all(check.rows != VALID for check in self.checks):
            return Contract("certificate/cases", NOT_RUN, why="no valid row of any case could be compared again")
        failed = any(not check.ok for check in self.checks)
        errors = [c.value for c in self.checks if c.rows == VALID and c.metric in ("max_abs", "fingerprint")]
        how = "" if self.reference is not None else ", by fingerprints of the outputs: no reference was given"
        empty = sum(contract.why == NO_ROW for contract in self.not_run)
        how += f"; {empty} more ran and had no valid row" if empty else ""
        why = f"{len({check.case for check in self.checks})} of {total} compared again{how}"
        return Contract("certificate/cases", FAILED if failed else OK, max(errors, default=None), why)


def _digest(certificate: Certificate, model: ir.Model) -> Contract:
    if certificate.digest is None:
        why = "the certificate is of an earlier release, which wrote none: whether the graph is the same is not known"
        return Contract("certificate/digest", NOT_RUN, why=why)
    if digest_of(model) == certificate.digest:
        return Contract("certificate/digest", OK, why="the graph and its weights are those that were checked")
    why = "the graph or its weights were changed after the certificate was written"
    return Contract("certificate/digest", FAILED, why=why)


def _versions(certificate: Certificate) -> Contract:
    now, then = versions(), certificate.versions
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    told = [f"{name} {then.get(name, 'not there')}, now {now.get(name, 'not there')}" for name in names]
    return Contract("certificate/versions", OK, why=f"differ: {'; '.join(told)}" if told else "the same as then")


def _load(model: File) -> ir.Model:
    what = look(model)
    try:
        return load_model(model)[0]
    except InspectError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        raise ToolError(f"{what} can't be read: {error}") from error


def _arrays(given: Any, drawn_from: DrawnFrom) -> Arrays | None:
    """Return an example in the types of then; None if it is of other inputs."""
    if not isinstance(given, Mapping):
        raise ToolError("example_inputs of a file must be a dict of arrays by input name")
    if missing := [name for name in drawn_from.examples if name not in given]:
        raise ToolError(f"the inputs that were given lack {missing[0]!r}; give one array for each input of the file")
    arrays = {}
    for name, example in drawn_from.examples.items():
        array = np.asarray(given[name])
        arrays[name] = array.astype(example.dtype) if is_float(array) and is_float(example) else array
    return arrays


def _from_file(source: ir.Model, hidden: Sequence[str], outputs: set[str], drawn_from: DrawnFrom, place: Place) -> Side:
    names = {str(value.name) for value in source.graph.outputs}
    inputs = {str(value.name): value.dtype for value in source.graph.inputs}
    if names != outputs or set(inputs) != set(drawn_from.examples):
        raise ToolError(
            f"the reference has the inputs {', '.join(inputs)} and the outputs {', '.join(sorted(names))}, the file's "
            f"are {', '.join(drawn_from.examples)} and {', '.join(sorted(outputs))}; give what the file was made from"
        )
    side = side_of(source, "the reference", as_written=True, outputs=hidden, place=place)
    types = {name: dtype.numpy() for name, dtype in inputs.items() if dtype is not None}
    return replace(side, run=lambda arrays: side.run(_cast(arrays, types)))


def _from_module(eager: Any) -> Side:
    types = {name: array.dtype for name, array in eager.examples.items()}

    def run(inputs: Mapping[str, np.ndarray]) -> Arrays:
        try:
            return dict(eager.run(_cast(inputs, types)))
        except (Refused, ExportError) as error:
            raise BackendError(str(error)) from error

    return Side(CPU, "the module", run)


def _cast(inputs: Mapping[str, np.ndarray], types: Mapping[str, np.dtype[Any]]) -> Arrays:
    """Bring numbers with a fraction to the types that a side takes."""
    return {name: array.astype(types[name]) if is_float(array) else array for name, array in inputs.items()}
