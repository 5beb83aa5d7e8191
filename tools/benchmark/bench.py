"""Everything in turn: make the files, start the processes, check them, and measure them interleaved."""

from __future__ import annotations

import importlib.util
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ..errors import ToolError
from . import machine
from .batches import Arrays, checked_batches, point_batches, real_tokens
from .candidates import MODEL, MODULE, Candidate, chosen
from .compare import Comparison, Found
from .material import Material, from_file, from_module
from .points import BASE, SWEEPS, TEXT, Point
from .process import Answer, Child, make
from .result import OK, UNAVAILABLE, WRONG, Entry, Result, Timed
from .subjects import SUBJECTS

# Rounds of a point: fewer than the least can't tell noise, more than the most tell nothing new.
ROUNDS, QUICK_ROUNDS = (3, 15), (3, 3)
# Passes that choose between a candidate's settings, after one that warms it up.
TRIALS = 3
REFERENCE = "the reference"
REFERENCES = {"torch": "PyTorch, eager", "onnxruntime": "the file itself in ONNX Runtime"}

Say = Callable[[str], None]


def bench(
    model: str | os.PathLike[str],
    *,
    against: Sequence[str | os.PathLike[str]] = (),
    candidates: Sequence[str] = (),
    sweeps: Sequence[str] = (),
    point: Point | None = None,
    inputs: str | os.PathLike[str] | None = None,
    quick: bool = False,
    budget: float = 600.0,
    on_step: Say | None = None,
) -> Result:
    """Measure a model beside what others make of it, interleaved, each candidate in a process of its own.

    Parameters
    ----------
    model
        A built-in subject (``minilm``, ``encoder``, ...), a SPEC as of `maskport export`, or an ONNX file.
    against
        More ONNX files with the same inputs.
    candidates
        Names of the table; all but the slow ones by default.
    sweeps
        ``fill``, ``batch``, ``length``: further points.
    point
        The first point; real text for ``minilm``, else 16 rows of 128 tokens.
    inputs
        A file of inputs that is the first point.
    quick
        Whether to run few rounds, of one batch.
    budget
        Seconds for the rounds of all points together; each point runs at least three rounds.
    on_step
        Is told what is done next.

    Returns
    -------
    Result
        Times, ratios, peak memory and what is wrong; ``to_json()`` is one object.

    Raises
    ------
    MaskportError, ExportError
        If the model can't be built, or nothing that says what is right runs.
    """
    say: Say = on_step or (lambda what: None)
    if unknown := [name for name in sweeps if name not in SWEEPS]:
        raise ToolError(f"there is no sweep {unknown[0]!r}; there are {', '.join(SWEEPS)}")
    name, given = os.fspath(model), None if inputs is None else Path(inputs)
    table = chosen(candidates, [Path(path) for path in against])
    with tempfile.TemporaryDirectory(prefix="maskport-bench-") as folder, ExitStack() as stack:
        say(f"Export {name}")
        if name.endswith(".onnx"):
            material = from_file(Path(name), Path(folder), given)
        else:
            material = from_module(name, Path(folder), given)
        points = _points(material, point, sweeps, given is not None)
        run = _Run(material, table, stack, say)
        run.start(points[0][1])
        if quick:
            points = [(p, batches[:1]) for p, batches in points]
        share = budget / len(points)
        timed = [run.measure(p, batches, QUICK_ROUNDS if quick else ROUNDS, share) for p, batches in points]
        entries = [run.entries[candidate.name] for candidate in table]
        return Result(name, material.what, REFERENCES[run.reference.engine], machine.describe(), entries, timed)


def _points(
    material: Material, first: Point | None, sweeps: Sequence[str], given: bool
) -> list[tuple[Point, list[Arrays]]]:
    subject = SUBJECTS.get(material.subject)
    layout, examples = material.layout, material.examples
    if given:
        batch = dict(examples)
        found = [(Point("given", *_size(batch), 1.0), [batch])]
    elif first is None and subject is not None and subject.kind == "minilm":
        from .texts import text_batches

        found = [(TEXT, text_batches(TEXT.count, TEXT.batch, TEXT.length))]
    else:
        point = first or BASE
        found = [(point, point_batches(layout, examples, point))]
    longest = subject.longest if subject is not None else max(p.length for sweep in SWEEPS.values() for p in sweep)
    wanted = [p for sweep in sweeps for p in SWEEPS[sweep] if p.length <= longest]
    return [*found, *((p, point_batches(layout, examples, p)) for p in wanted)]


def _size(batch: Mapping[str, np.ndarray]) -> tuple[int, int]:
    shape = (*max((array.shape for array in batch.values()), key=len), 1, 1)
    return shape[0], shape[1]


class _Run:
    """The candidates of one run, each with its process."""

    def __init__(self, material: Material, table: Sequence[Candidate], stack: ExitStack, say: Say) -> None:
        self.material, self.table, self.stack, self.say = material, table, stack, say
        self.threads = machine.threads()
        self.entries = {candidate.name: Entry.of(candidate) for candidate in table}
        self.children: dict[str, Child] = {}
        engine, source = ("torch", MODULE) if MODULE in material.sources else ("onnxruntime", MODEL)
        self.reference = Candidate(REFERENCE, "", engine, source)
        self.order = random.Random(0)

    def start(self, batches: Sequence[Arrays]) -> None:
        """Start the reference and the candidates, and check each at small batches of every padding."""
        paths = self.material.write("first", batches)
        child, answer = self._load(self.reference, self.material.sources[self.reference.source], {})
        if "error" in answer:
            raise ToolError(f"{self.material.subject} doesn't load: {answer['error']}")
        self.children[REFERENCE] = child
        small = checked_batches(self.material.layout, self.material.examples)
        checks = {}
        for pattern, batch in small.items():
            checks[pattern] = self._expected(self.material.write(pattern, [batch]), [batch])
        for candidate in self.table:
            self.say(f"Prepare {candidate.name}")
            entry = self.entries[candidate.name]
            source = self._source(candidate, entry)
            if source is None or not self._best(candidate, entry, source, paths[:1]):
                continue
            for pattern, (files, comparisons) in checks.items():
                entry.padding[pattern] = self._check(candidate.name, files, comparisons)

    def measure(self, point: Point, batches: Sequence[Arrays], rounds: tuple[int, int], budget: float) -> Timed:
        """Measure a point: a pass of each candidate that warms up and is compared, then the rounds."""
        real, tokens = map(sum, zip(*(real_tokens(self.material.layout, batch) for batch in batches), strict=True))
        length = max(_size(batch)[1] for batch in batches)
        timed = Timed(point.name, point.batch, length, real / tokens if tokens else 1.0)
        self.say(f"Measure {timed}")
        files, comparisons = self._expected(self.material.write("point", batches), batches)
        names = []
        for candidate in self.table:
            if candidate.name in self.children and self._compare(timed, candidate.name, files, comparisons):
                names.append(candidate.name)
        work, end, (least, most) = machine.Work(), time.monotonic() + budget, rounds
        for done in range(most):
            if done >= least and time.monotonic() > end:
                break
            for name in self.order.sample(names, len(names)):
                answer = self.children[name].ask({"paths": files, "save": False})
                if "error" in answer:
                    self._drop(name, timed, answer["error"])
                    names.remove(name)
                    continue
                timed.seconds.setdefault(name, []).append(answer["seconds"])
                timed.megabytes[name] = answer["megabytes"]
                work.ours += answer["cpu"]
        timed.elsewhere = work.elsewhere()
        return timed

    def _source(self, candidate: Candidate, entry: Entry) -> str | None:
        """Return what the candidate loads, made where it must be; None if there is nothing, which is noted."""
        if candidate.package is not None and importlib.util.find_spec(candidate.package) is None:
            entry.fail(f"{candidate.package} is not installed; pip install 'maskport[bench]'", UNAVAILABLE)
            return None
        if candidate.source in self.material.missing:
            entry.fail(self.material.missing[candidate.source], UNAVAILABLE)
            return None
        source = self.material.sources.get(candidate.source, candidate.source)
        if candidate.make is None:
            return source
        made = self.material.folder / f"{candidate.make}.onnx"
        same = [e for c in self.table if c.make == candidate.make and (e := self.entries[c.name]) is not entry]
        if (first := next((e for e in same if e.made_seconds is not None or e.status != OK), None)) is not None:
            # The same file, which is run in another way.
            entry.made_seconds, entry.told = first.made_seconds, first.told
            if first.made_seconds is None:
                entry.fail(first.why, first.status)
                return None
            return str(made)
        answer = make(candidate.make, Path(source), made)
        if "error" in answer:
            entry.fail(f"it was not made: {answer['error']}")
            return None
        entry.made_seconds, entry.told = answer["seconds"], answer["told"]
        return str(made)

    def _best(self, candidate: Candidate, entry: Entry, source: str, paths: list[str]) -> bool:
        """Keep the process of the fastest setting; false if none runs."""
        best = float("inf")
        for setting in candidate.settings:
            child, answer = self._load(candidate, source, setting)
            fastest = self._trial(child, paths, candidate, answer)
            if "error" in answer:
                entry.why = entry.why or answer["error"]
            if fastest < best:
                best, entry.setting, entry.load_seconds = fastest, dict(setting), answer["seconds"]
                self.children[candidate.name], child = child, self.children.get(candidate.name, child)
            if child is not self.children.get(candidate.name):
                child.close()
        if candidate.name not in self.children:
            entry.fail(entry.why)
            return False
        entry.why = ""
        return True

    def _trial(self, child: Child, paths: list[str], candidate: Candidate, answer: Answer) -> float:
        """Return the fastest of a few passes; infinity if one fails, which is noted in the answer."""
        if len(candidate.settings) == 1 and "error" not in answer:
            return 0.0
        times: list[float] = []
        for _ in range(1 + TRIALS):
            if "error" not in answer:
                tried = child.ask({"paths": paths, "save": False})
                times.append(tried.get("seconds", 0.0))
                answer |= {"error": tried["error"]} if "error" in tried else {}
        return float("inf") if "error" in answer else min(times[1:])

    def _load(self, candidate: Candidate, source: str, setting: Mapping[str, str]) -> tuple[Child, Answer]:
        threads = str(self.threads)
        child = Child("worker", environment={"OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", **setting})
        self.stack.callback(child.close)
        request = {
            "engine": candidate.engine,
            "source": source,
            "rows": candidate.rows,
            "threads": self.threads,
            "io": self.material.io,
        }
        return child, child.ask(request)

    def _expected(self, paths: list[str], batches: Sequence[Arrays]) -> tuple[list[str], list[Comparison]]:
        answer = self.children[REFERENCE].ask({"paths": paths, "save": True})
        if "error" in answer:
            raise ToolError(f"{self.material.subject} doesn't run on {_shapes(batches[0])}: {answer['error']}")
        layout = self.material.layout
        return paths, [
            Comparison(layout, batch, np.load(path)) for batch, path in zip(batches, answer["outputs"], strict=True)
        ]

    def _check(self, name: str, paths: list[str], comparisons: Sequence[Comparison]) -> Found:
        answer = self.children[name].ask({"paths": paths, "save": True})
        if "error" in answer:
            return Found(None, answer["error"])
        return comparisons[0].found(np.load(answer["outputs"][0]))

    def _compare(self, timed: Timed, name: str, paths: list[str], comparisons: Sequence[Comparison]) -> bool:
        answer = self.children[name].ask({"paths": paths, "save": True})
        if "error" in answer:
            self._drop(name, timed, answer["error"])
            return False
        found = [c.found(np.load(path)) for c, path in zip(comparisons, answer["outputs"], strict=True)]
        errors = [each.error for each in found]
        timed.errors[name] = None if None in errors else max(error for error in errors if error is not None)
        if wrong := [each.wrong for each in found if each.wrong]:
            timed.faults[name] = wrong[0]
            self.entries[name].fail(f"at {timed}: {wrong[0]}", WRONG)
        return True

    def _drop(self, name: str, timed: Timed, why: str) -> None:
        self.entries[name].fail(f"at {timed}: {why}")
        timed.faults[name] = why
        timed.seconds.pop(name, None)
        if not self.children[name].alive:
            del self.children[name]


def _shapes(batch: Arrays) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in batch.items())
