"""Whether a run can be captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .device_log import Line
from .profile import NodeRun, Timeline
from .trace import GraphCapture, RanNode

# How ONNX Runtime says that a node is not on CUDA; it doesn't say which.
NOT_ON_CUDA = "have not been partitioned to the CUDAExecutionProvider"
MOST_NAMED = 3


def capture_of(
    lines: Sequence[Line], runs: Iterable[NodeRun], error: str | None, nodes: Iterable[RanNode]
) -> GraphCapture:
    """Say whether the graph of a session was captured.

    Parameters
    ----------
    lines, runs
        The log and the profile of a session that was asked to capture.
    error
        What ONNX Runtime said if it failed.
    nodes
        The nodes of the run that was not captured.
    """
    timeline = Timeline(runs)
    began = False
    for line in lines:
        began |= line.kind == "capture"
        if line.kind == "forbidden":
            return GraphCapture(False, f"{_where(timeline, line)} calls {line.name}, which no capture allows")
    if error is not None:
        return GraphCapture(False, error + (_elsewhere(nodes) if NOT_ON_CUDA in error else ""))
    for line in lines:
        # The copy is part of the graph, but what the host read when it was captured stays as it was.
        if line.kind == "copy" and line.captured and line.name in ("d2h", "h2d"):
            way = "to the host" if line.name == "d2h" else "from the host"
            reason = f"runs but wrong: {_where(timeline, line)} copies {line.more[0]} bytes {way} without a wait"
            return GraphCapture(False, reason)
    return GraphCapture(True, None) if began else GraphCapture(False, "ONNX Runtime began no capture")


def _where(timeline: Timeline, line: Line) -> str:
    around = timeline.around(line.ns)
    return f"{around[-1].op_type} {around[-1].node}" if around else "ONNX Runtime"


def _elsewhere(nodes: Iterable[RanNode]) -> str:
    found = [f"{ran.op_type} {ran.node}" for ran in nodes if ran.provider != "CUDA" or ran.op_type.startswith("Memcpy")]
    names = [*dict.fromkeys(found)]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f": {', '.join(names[:MOST_NAMED])}{more}" if names else ""
