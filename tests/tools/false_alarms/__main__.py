"""The command: ``python -m tests.tools.false_alarms --seeds 100 --out alarms.jsonl`` in the repository's folder."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from .graphs import NAMES, OPSETS, Graph
from .table import lines
from .trial import Trial, trials

# Sets of weights; which one a seed has is its remainder.
WEIGHTS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Try what the file doesn't hold yet, and print the table; 1 if there were alarms."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.false_alarms", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many, from 0 on")
    parser.add_argument("--full", type=int, help="how many of them in full, the others --quick; by default half")
    names = f"of {', '.join(NAMES)}; by default all"
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, metavar="MODEL", help=names)
    parser.add_argument("--opsets", nargs="+", type=int, choices=OPSETS, default=OPSETS)
    parser.add_argument("--jobs", type=int, default=1, help="processes, with one thread each")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, which are added to")
    parser.add_argument("--graphs", type=Path, help="a folder in which the exported files are kept")
    asked = parser.parse_args(arguments)
    full = (asked.seeds + 1) // 2 if asked.full is None else asked.full
    before = {(t.model, t.opset, t.seed, t.quick) for t in read(asked.out)}
    waiting: list[tuple[Graph, list[tuple[int, bool]]]] = []
    wanted = set()
    for weights, name, opset in itertools.product(range(WEIGHTS), asked.models, asked.opsets):
        seeds = [(seed, seed >= full) for seed in range(weights, asked.seeds, WEIGHTS)]
        wanted |= {(name, opset, seed, quick) for seed, quick in seeds}
        left = [(seed, quick) for seed, quick in seeds if (name, opset, seed, quick) not in before]
        if left:
            waiting.append((Graph(name, opset, weights), left))
    # Before ONNX Runtime and PyTorch are there.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder, asked.out.open("a", encoding="utf-8") as file:
        graphs = asked.graphs or Path(folder)
        graphs.mkdir(parents=True, exist_ok=True)
        for done in _each(waiting, graphs, asked.jobs):
            for trial in done:
                file.write(json.dumps(asdict(trial)) + "\n")
            file.flush()
    found = [t for t in read(asked.out) if (t.model, t.opset, t.seed, t.quick) in wanted]
    found.sort(key=lambda t: (NAMES.index(t.model), t.opset, t.seed))
    print("\n".join(lines(found)))
    return int(any(trial.alarms for trial in found))


def _each(
    waiting: Sequence[tuple[Graph, list[tuple[int, bool]]]], graphs: Path, jobs: int
) -> Iterator[Sequence[Trial]]:
    """Try each graph: in this process, or in several."""
    if jobs == 1:
        yield from (trials(graph, graphs, left) for graph, left in waiting)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(trials, graph, graphs, left) for graph, left in waiting]
        yield from (done.result() for done in as_completed(running))


def read(path: Path) -> list[Trial]:
    """Return the trials that a file holds."""
    if not path.exists():
        return []
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Trial(**{**entry, "alarms": tuple(entry["alarms"])}) for entry in entries]


if __name__ == "__main__":
    raise SystemExit(main())
