"""What the null device says of itself: one common GPU for each compute capability."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ToolError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Gpu:
    """A GPU as its data sheet and NVIDIA's table of compute capabilities describe it.

    Attributes
    ----------
    name
        The card.
    multiprocessors
        Their number; kernels that split a decode step choose their grids by it.
    memory, l2
        Bytes.
    shared_multiprocessor, shared_optin
        Bytes of shared memory of a multiprocessor, and the most that a block can ask for.
    threads, blocks
        The most that a multiprocessor holds.
    """

    name: str
    multiprocessors: int
    memory: int
    l2: int
    shared_multiprocessor: int
    shared_optin: int
    threads: int
    blocks: int


# By compute capability. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
GPUS = {
    75: Gpu("T4", 40, 16 * GIB, 4 * MIB, 64 * KIB, 64 * KIB, 1024, 16),
    80: Gpu("A100", 108, 80 * GIB, 40 * MIB, 164 * KIB, 163 * KIB, 2048, 32),
    86: Gpu("A10", 72, 24 * GIB, 6 * MIB, 100 * KIB, 99 * KIB, 1536, 16),
    89: Gpu("L4", 58, 24 * GIB, 48 * MIB, 100 * KIB, 99 * KIB, 1536, 24),
    90: Gpu("H100", 132, 80 * GIB, 50 * MIB, 228 * KIB, 227 * KIB, 2048, 32),
    120: Gpu("RTX 5090", 170, 32 * GIB, 96 * MIB, 100 * KIB, 99 * KIB, 1536, 24),
}


def gpu(sm: int) -> Gpu:
    """Return the GPU of a compute capability, times ten.

    Raises
    ------
    ToolError
        If it isn't in the table.
    """
    if sm not in GPUS:
        known = ", ".join(f"{sm} ({gpu.name})" for sm, gpu in GPUS.items())
        raise ToolError(f"sm {sm} is unknown; give one of {known}")
    return GPUS[sm]
