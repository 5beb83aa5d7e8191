"""Models run in turns, so that what else the machine does falls on all of them alike."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from ..check.backend import session_of

__all__ = ["Feeds", "interleaved", "loaded"]

Feeds = Mapping[str, np.ndarray]
FATAL_ONLY = 4
# Fewer can't tell what disturbed one of them.
LEAST_ROUNDS = 5
# Others only ever make a run slower: the faster runs are closer to what it takes.
QUANTILE = 0.25


def loaded(model: ir.Model, threads: int = 0) -> ort.InferenceSession:
    """Return a session on the CPU, of all cores if `threads` is 0."""
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = FATAL_ONLY, threads
    # A session's threads go on spinning after a run, and would take the cores from the next session.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return session_of(model, options)


def interleaved(
    sessions: Mapping[str, ort.InferenceSession], feeds: Feeds, seconds: float, threads: int = 0
) -> dict[str, float]:
    """Return the seconds of a run of each session, inputs cast to the types that it takes.

    Sessions of one thread run in the caller's: its own time counts, in which nothing else runs.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    given = {name: _given(session, feeds) for name, session in sessions.items()}
    for name, session in sessions.items():
        session.run(None, given[name])
    times: dict[str, list[float]] = {name: [] for name in sessions}
    order, names, end, rounds = random.Random(0), list(sessions), time.monotonic() + seconds, 0
    while rounds < LEAST_ROUNDS or time.monotonic() < end:
        rounds += 1
        for name in order.sample(names, len(names)):
            start = clock()
            sessions[name].run(None, given[name])
            times[name].append(clock() - start)
    return {name: float(np.quantile(found, QUANTILE)) for name, found in times.items()}


def _given(session: ort.InferenceSession, feeds: Feeds) -> dict[str, np.ndarray]:
    half = {value.name for value in session.get_inputs() if value.type == "tensor(float16)"}
    wanted = [value.name for value in session.get_inputs()]
    return {name: feeds[name].astype(np.float16) if name in half else feeds[name] for name in wanted}
