"""From the device's log and ONNX Runtime's profile to what was done by which node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ToolError
from .device_log import Line, parts
from .kernels import OPERATORS, attention_kind
from .profile import NodeRun, Timeline
from .reasons import Chosen, why_not
from .sites import Site
from .trace import Action, AttentionKernel, RanNode, launches_by_node

if TYPE_CHECKING:
    import onnx

# What the host asks of the device; other lines of the log are about the log itself.
ACTIONS = {"kernel", "library", "copy", "memset", "alloc", "sync", "event", "host", "graph"}
SIZED = {"memset", "alloc"}


class Steady(NamedTuple):
    """The steady run: its actions and nodes in order, and bytes of device memory at peak."""

    actions: tuple[Action, ...]
    nodes: tuple[RanNode, ...]
    memory: int


def steady_run(lines: Sequence[Line], runs: Iterable[NodeRun], mark: str = "steady") -> Steady:
    """Join a log and a profile.

    Raises
    ------
    ToolError
        If a kernel or library call falls to no node: then the clocks of the two don't agree.
    """
    timeline = Timeline(runs)
    followed = [(at, found) for at, found in parts(lines) if at.name == mark]
    if not followed:
        return Steady((), (), 0)
    begin, found = followed[-1]
    after = [line for line in lines if line.kind == "mark" and line.ns > begin.ns]
    end = after[0] if after else lines[-1]
    ran = timeline.between(begin.ns, end.ns)
    first, last = (ran[0].start, max(run.end for run in ran)) if ran else (end.ns, end.ns)
    done = [line for line in found if line.kind in ACTIONS]
    order = {ns: place for place, ns in enumerate(sorted([line.ns for line in done] + [run.start for run in ran]))}
    actions = tuple(_action(line, timeline.around(line.ns), first, last, order[line.ns]) for line in done)
    lost = [action.name for action in actions if action.launch and action.node is None]
    if lost:
        raise ToolError(f"{len(lost)} launches fall to no node, among them {lost[0]}; was the system's clock set?")
    nodes = tuple(RanNode(run.node, run.op_type, run.provider, order[run.start]) for run in ran)
    return Steady(actions, nodes, int(end.more[1]))


def _action(line: Line, around: list[NodeRun], first: int, last: int, order: int) -> Action:
    run = around[-1] if around else None
    place = "node" if run else "before" if line.ns < first else "after" if line.ns > last else "between"
    answered = None
    size = 0
    detail = " ".join(line.more)
    if line.kind == "kernel":
        grid, block, shared = line.more[:3]
        detail = f"grid {grid}, block {block}" + (f", {shared} bytes shared" if shared != "0" else "")
    elif line.kind == "copy":
        size, detail = int(line.more[0]), line.more[1]
        answered = line.more[4] == "yes" if line.name == "d2h" and place != "after" else None
    elif line.kind in SIZED:
        size, detail = int(line.more[0]), ""
    node, op_type = (run.node, run.op_type) if run else (None, None)
    within = tuple(outer.node for outer in around[:-1])
    return Action(line.kind, line.name, detail, node, op_type, place, order, size, answered, within)


def attention(
    steady: Steady, sites: Mapping[str, Site], nodes: Mapping[str, onnx.NodeProto], sm: int
) -> tuple[AttentionKernel, ...]:
    """Return the kernel of each attention that ran.

    Parameters
    ----------
    steady
        The run.
    sites
        What the graph tells of its attention, by node; an operator counts without it.
    nodes
        The graph's nodes by name.
    sm
        Compute capability, times ten.
    """
    launched = launches_by_node(steady.actions)
    found = {ran.node: ran.op_type for ran in steady.nodes if ran.op_type in OPERATORS or ran.node in sites}
    kernels = []
    for node, op_type in found.items():
        names, site, written = launched.get(node, ()), sites.get(node, Site(None, None)), nodes.get(node)
        kind = attention_kind(names)
        # A node that ONNX Runtime made itself is one of its own operators.
        domain = "com.microsoft" if written is None else written.domain
        given = [] if written is None else [place for place, name in enumerate(written.input) if name]
        why = why_not(kind, Chosen(op_type, domain, given, names, sm))
        kernels.append(AttentionKernel(node, op_type, kind, len(names), why, *site))
    return tuple(kernels)


# What is not simulated faithfully, by the kind and the name of a line of the log; an empty name is any.
REGISTERS = "answered without the kernel's registers, so that grids may differ"
DOUBTS = {
    ("unknown", ""): "a call that the stand-ins don't know, answered with a default",
    ("estimate", "cudaFuncGetAttributes"): REGISTERS,
    ("estimate", "cudaOccupancyMaxActiveBlocksPerMultiprocessor"): REGISTERS,
    ("estimate", "cudaEventElapsedTime"): "every time is 1 ms, so that what is chosen by time may differ",
    ("library", "cudnnBackendExecute"): "that cuDNN takes these graphs is taken for granted; see --cudnn refuse",
}
ADDRESSES = "address randomisation can't be turned off here: the memory at peak and the order of copies may vary"


def doubts(lines: Iterable[Line], fixed_addresses: bool) -> tuple[str, ...]:
    """Return what in a process was not simulated faithfully, one line each."""
    counts = Counter((line.kind, line.name) for line in lines)
    found = [
        f"{name}: {text} ({count})"
        for (kind, name), count in sorted(counts.items())
        if (text := DOUBTS.get((kind, name)) or DOUBTS.get((kind, "")))
    ]
    return tuple(found if fixed_addresses else [*found, ADDRESSES])


def unknown_values(actions: Iterable[Action]) -> tuple[str, ...]:
    """Return the copies to the host whose values were not known, one line each."""
    return tuple(
        f"{f'{action.op_type} {action.node}' if action.node else 'ONNX Runtime'}: what it reads back from the device "
        f"({action.bytes} bytes) could not be computed on the CPU; shapes that depend on it are wrong"
        for action in actions
        if action.answered is False
    )
