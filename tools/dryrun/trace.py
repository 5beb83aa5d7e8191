"""What a dry run found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .kernels import short_name

COPIES = ("h2d", "d2h", "d2d")


@dataclass(frozen=True)
class Action:
    """One thing that the host asked of the device during the steady run.

    Attributes
    ----------
    kind
        ``kernel``, ``library``, ``copy``, ``memset``, ``alloc``, ``sync``, ``event``, ``host`` or ``graph``.
    name
        The kernel's full name, the call, or the kind of the copy.
    detail
        Of a kernel its grid, block and shared memory; of a product its size; of a copy its bytes and call.
    node, op_type
        The node that ran; None before, between and after nodes.
    where
        ``node``, or ``before``, ``between`` or ``after`` the nodes: there inputs and outputs are copied.
    bytes
        Of a copy, fill or allocation.
    answered
        Whether a copy to the host was given what a CPU had computed; None for anything else.
    order
        Its place among all actions and nodes.
    within
        The nodes around the node, from outside: the If or Loop whose branch or body it is in.
    """

    kind: str
    name: str
    detail: str
    node: str | None
    op_type: str | None
    where: str
    order: int
    bytes: int = 0
    answered: bool | None = None
    within: tuple[str, ...] = ()

    @property
    def launch(self) -> bool:
        """Whether it is work that the device does: a kernel, or a library's call."""
        return self.kind in ("kernel", "library")


@dataclass(frozen=True)
class AttentionKernel:
    """The kernel that an attention got.

    Attributes
    ----------
    node, op_type
        The node; of decomposed attention its Softmax.
    kernel
        ``flash``, ``memory_efficient``, ``math``, ``cudnn``, ``trt``, ``xqa`` or ``none``.
    launches
        How many kernels and library calls the node makes.
    why
        Why it is neither Flash nor cuDNN, where that is known.
    name, mask
        The module's name and the mask, as :func:`maskport.export.inspect` reads them; None where it doesn't.
    """

    node: str
    op_type: str
    kernel: str
    launches: int
    why: str | None = None
    name: str | None = None
    mask: str | None = None


@dataclass(frozen=True)
class GraphCapture:
    """Whether the steady run can be captured as a CUDA graph; `capturable` is None if it was not tried."""

    capturable: bool | None
    reason: str | None


@dataclass(frozen=True)
class RanNode:
    """A run of a node; `order` is the place of its start among all actions and nodes."""

    node: str
    op_type: str
    provider: str
    order: int


@dataclass(frozen=True)
class Trace:
    """A dry run: what one inference asks of the device after warm-up.

    Attributes
    ----------
    model
        The file, or what stands for it.
    sm, gpu, cudnn
        The device that was stood in for, and how cuDNN answered.
    onnxruntime
        Its version.
    inputs
        Shapes by name.
    actions
        In order.
    nodes
        In order.
    attention
        The kernel of each attention.
    memory
        Bytes of device memory at peak: the arenas, with weights and activations.
    cuda_graph
        Whether the run can be captured.
    not_faithful
        What in this run was not simulated faithfully, one line each.
    """

    model: str
    sm: int
    gpu: str
    cudnn: str
    onnxruntime: str
    inputs: dict[str, tuple[int, ...]]
    actions: tuple[Action, ...]
    nodes: tuple[RanNode, ...]
    attention: tuple[AttentionKernel, ...]
    memory: int
    cuda_graph: GraphCapture
    not_faithful: tuple[str, ...] = field(default=())

    @property
    def launches(self) -> int:
        """Kernels and library calls of the steady run."""
        return sum(action.launch for action in self.actions)

    @property
    def library_calls(self) -> int:
        """Library calls among the launches; each may be several kernels of the library's own."""
        return self._count("library")

    @property
    def syncs(self) -> int:
        """How often the host waits for the device."""
        return self._count("sync")

    @property
    def cpu_nodes(self) -> tuple[str, ...]:
        """The nodes that run on the CPU."""
        return tuple(dict.fromkeys(ran.node for ran in self.nodes if ran.provider != "CUDA"))

    def copies(self, kind: str, *, inside: bool = False) -> int:
        """Return how many copies of a kind there are; `inside`: between the first and the last node."""
        found = (action for action in self.actions if action.kind == "copy" and action.name == kind)
        return sum(action.where in ("node", "between") or not inside for action in found)

    def kernels(self) -> dict[str, int]:
        """Return the short names of kernels and library calls with their counts, the most frequent first."""
        counts = Counter(short_name(action.name) for action in self.actions if action.launch)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "format": 1,
            "model": self.model,
            "sm": self.sm,
            "gpu": self.gpu,
            "cudnn": self.cudnn,
            "onnxruntime": self.onnxruntime,
            "inputs": {name: list(shape) for name, shape in self.inputs.items()},
            "steady": {
                "launches": self.launches,
                "library_calls": self.library_calls,
                **{kind: self.copies(kind) for kind in COPIES},
                "inside": {kind: self.copies(kind, inside=True) for kind in COPIES},
                "syncs": self.syncs,
                "allocations": self._count("alloc"),
                "memsets": self._count("memset"),
                "kernels": [{"name": name, "count": count} for name, count in self.kernels().items()],
            },
            "attention": [vars(site) for site in self.attention],
            "cpu_nodes": list(self.cpu_nodes),
            "copies": [_copy(action) for action in self.actions if action.kind == "copy"],
            "memory": self.memory,
            "cuda_graph": vars(self.cuda_graph),
            "not_faithful": list(self.not_faithful),
        }

    def dumps(self) -> str:
        """Return the report as JSON text, the same for the same run."""
        return json.dumps(self.to_json(), indent=1)

    def _count(self, kind: str) -> int:
        return sum(action.kind == kind for action in self.actions)


def _copy(action: Action) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": action.name, "bytes": action.bytes, "where": action.where, "node": action.node}
    return found if action.answered is None else {**found, "answered": action.answered}


def launches_by_node(actions: Sequence[Action]) -> dict[str, list[str]]:
    """Return the names of each node's launches."""
    found: dict[str, list[str]] = {}
    for action in actions:
        if action.launch and action.node is not None:
            found.setdefault(action.node, []).append(action.name)
    return found
