"""The process of one candidate: it loads it, and then answers one request at a time.

Each has a process of its own: a crash is its own, peak memory is its own, and two libraries' threads and OpenMP
runtimes never meet. Before it answers it waits until its threads rest, so that none spins while another is measured.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ...export.cases.layout import Layout
from .engines import ENGINES, Run
from .memory import peak_megabytes, restart_peak
from .protocol import answers, failure
from .rows import by_rows

# The longest that OpenMP's threads spin by default is 200 ms.
PAUSE, LONGEST_PAUSE = 0.01, 2.0


class Worker:
    """A candidate in its process.

    Parameters
    ----------
    engine, source
        As in the table; the source is a path, or the name of the subject.
    rows
        Whether it runs row by row.
    threads
        For one operator.
    io
        The ``maskport.io`` metadata of the subject.
    """

    def __init__(self, engine: str, source: str, rows: bool, threads: int, io: dict[str, Any]) -> None:
        load = ENGINES[engine](source, threads)
        start = time.perf_counter()
        run = load()
        self.seconds = time.perf_counter() - start
        self.run: Run = by_rows(run, Layout.from_io(io)) if rows else run

    def measure(self, paths: list[str], save: bool) -> dict[str, Any]:
        """Run the batches of some files, one after the other; the time is that of running them alone."""
        used = time.process_time()
        batches = [dict(np.load(path)) for path in paths]
        restart_peak()
        seconds, outputs = 0.0, []
        for batch in batches:
            start = time.perf_counter()
            output = self.run(batch)
            seconds += time.perf_counter() - start
            if save:
                outputs.append(output)
        answer: dict[str, Any] = {"seconds": seconds, "megabytes": peak_megabytes()}
        rest()
        answer["cpu"] = time.process_time() - used
        if save:
            answer["outputs"] = [_saved(Path(path), output) for path, output in zip(paths, outputs, strict=True)]
        return answer


def _saved(path: Path, output: np.ndarray) -> str:
    # Each candidate has its own; the parent reads it before the next one runs.
    np.save(target := path.with_suffix(".output.npy"), output)
    return str(target)


def rest() -> None:
    """Wait until no thread of this process is busy."""
    end = time.monotonic() + LONGEST_PAUSE
    while time.monotonic() < end:
        before = time.process_time()
        time.sleep(PAUSE)
        if time.process_time() - before < PAUSE / 10:
            return


def main() -> None:
    """Answer requests until standard input ends; the first says what to load."""
    worker: Worker | None = None
    with answers() as answer:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if worker is None:
                    worker = Worker(**request)
                    found: dict[str, Any] = {"seconds": worker.seconds}
                    rest()
                else:
                    found = worker.measure(**request)
            except Exception as error:
                found = failure(error)
            answer(json.dumps(found))


if __name__ == "__main__":
    main()
