"""A dry run, and two side by side, as text that fits 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ..screen import Screen
from ..shown import joined, plural, shown
from ..tables import plain_table
from .trace import COPIES, AttentionKernel, Trace

LONGEST_KERNEL = 60
LONGEST_MASK = 200
LONGEST_LINE = 300
MOST_KERNELS = 20
GOOD = ("flash", "cudnn")
# What stands for each model in a comparison.
LABELS = ("A", "B")


def print_trace(screen: Screen, trace: Trace) -> None:
    """Print the attention kernels, the counts, the kernels, and what was not simulated faithfully."""
    out = screen.out
    shapes = (f"{name} {list(shape)}" for name, shape in trace.inputs.items())
    out.print(Text(f"{shown(trace.model)} on sm {trace.sm} ({trace.gpu}), ONNX Runtime {trace.onnxruntime}", "bold"))
    out.print(Text(shown(", ".join(shapes), LONGEST_LINE), "dim"))
    if trace.attention:
        out.print()
        print_attention(screen, trace.attention)
    out.print()
    out.print(counts_table([trace]))
    out.print()
    out.print(kernels_table([trace]))
    print_doubts(screen, trace)


def print_comparison(screen: Screen, traces: Sequence[Trace]) -> None:
    """Print the same of several models, a column each."""
    out = screen.out
    first = traces[0]
    out.print(Text(f"sm {first.sm} ({first.gpu}), ONNX Runtime {first.onnxruntime}", "bold"))
    for label, trace in zip(LABELS, traces, strict=False):
        if trace.attention:
            out.print(Text(f"\n{label} {shown(trace.model)}", "bold"))
            print_attention(screen, trace.attention)
    out.print()
    out.print(counts_table(traces))
    out.print()
    out.print(kernels_table(traces))
    for trace in traces:
        print_doubts(screen, trace)


def print_attention(screen: Screen, sites: Sequence[AttentionKernel]) -> None:
    """Print the kernel of each attention, and why it is no better one."""
    screen.out.print(attention_table(sites))
    for kernel, why in dict.fromkeys((site.kernel, site.why) for site in sites if site.why is not None):
        screen.out.print(Text(f"{kernel}: {why}", "dim"))


def attention_table(sites: Sequence[AttentionKernel]) -> Table:
    """Return one line for the sites that are alike but for a number in their names."""
    table = plain_table("attention", "operator", "kernel", ">launches")
    for name, site in _alike(sites):
        kernel = Text(site.kernel, "green" if site.kernel in GOOD else "yellow")
        table.add_row(Text(shown(name, 34)), Text(shown(site.op_type, 24)), kernel, str(site.launches))
        if site.mask is not None:
            table.add_row(Text(f"  {shown(site.mask, LONGEST_MASK)}", "cyan"))
    return table


def _alike(sites: Sequence[AttentionKernel]) -> list[tuple[str, AttentionKernel]]:
    alike: dict[tuple[object, ...], list[AttentionKernel]] = {}
    for site in sites:
        alike.setdefault((site.op_type, site.kernel, site.launches, site.mask), []).append(site)
    return [
        (name, group[places[0]])
        for group in alike.values()
        for name, places in joined([site.name or site.node for site in group])
    ]


def counts_table(traces: Sequence[Trace]) -> Table:
    """Return the counts of a steady run, a column for each trace."""
    several = len(traces) > 1
    titles = [
        f">{label} {shown(trace.model, 20)}" if several else "" for label, trace in zip(LABELS, traces, strict=False)
    ]
    table = plain_table("", *titles)
    table.show_header = several
    rows = {
        "launches": [str(trace.launches) for trace in traces],
        "  of them library calls": [str(trace.library_calls) for trace in traces],
        "copies h2d, d2h, d2d": [_copies(trace, inside=False) for trace in traces],
        "  between the nodes": [_copies(trace, inside=True) for trace in traces],
        "waits of the host": [str(trace.syncs) for trace in traces],
        "device memory at peak": [f"{trace.memory / 1e6:.0f} MB" for trace in traces],
        "nodes on the CPU": [_cpu_nodes(trace) for trace in traces],
        "CUDA graph": [_graph(trace, not several) for trace in traces],
    }
    for what, values in rows.items():
        table.add_row(what, *values)
    return table


def _copies(trace: Trace, inside: bool) -> str:
    return ", ".join(str(trace.copies(kind, inside=inside)) for kind in COPIES)


def _cpu_nodes(trace: Trace) -> str:
    count = len(trace.cpu_nodes)
    copies = sum(trace.copies(kind, inside=True) for kind in ("h2d", "d2h"))
    return f"{count}, without a copy" if count and not copies else str(count)


def _graph(trace: Trace, whole: bool) -> str:
    captured = trace.cuda_graph
    if captured.capturable is None:
        return "not tried"
    if captured.capturable:
        return "can be captured"
    return f"no: {shown(captured.reason or '', LONGEST_LINE)}" if whole else "no"


def kernels_table(traces: Sequence[Trace]) -> Table:
    """Return how often each kernel is launched, the most frequent first."""
    titles = [f">{label}" for label in LABELS[: len(traces)]] if len(traces) > 1 else [">times"]
    table = plain_table(*titles, "kernel")
    counts = [trace.kernels() for trace in traces]
    most = {name: max(other.get(name, 0) for other in counts) for count in counts for name in count}
    names = sorted(most, key=lambda name: -most[name])
    listed = names if len(names) <= MOST_KERNELS else names[: MOST_KERNELS - 1]
    for name in listed:
        table.add_row(*(str(count.get(name, "-")) for count in counts), Text(shown(name, LONGEST_KERNEL)))
    if rest := names[len(listed) :]:
        table.add_row(
            *(str(sum(count.get(name, 0) for name in rest)) for count in counts), f"{len(rest)} other kernels"
        )
    return table


def print_doubts(screen: Screen, trace: Trace) -> None:
    """Print what was not simulated faithfully."""
    if trace.not_faithful:
        screen.out.print(Text(f"\nNot faithful in {shown(trace.model)}", "yellow"))
        for line in trace.not_faithful:
            screen.out.print(Text(f"  {shown(line, LONGEST_LINE)}", "dim"))


def conclusion(trace: Trace, over: Sequence[str], asked: bool) -> Text:
    """Return the verdict on a budget, or what the run can't tell."""
    if not asked:
        return Text("Times and values are unknown: no kernel ran.", "dim")
    if not over:
        return Text(f"{shown(trace.model)} is within the budget.", "green")
    lines = [Text(f"over the budget in {plural(len(over), 'way')}", "bold red")]
    return Text("\n").join([*lines, *(Text(f"  {shown(line, LONGEST_LINE)}") for line in over)])
