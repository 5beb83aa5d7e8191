"""Denormal numbers are flushed to zero while a model runs, in the thread that runs it, and only then.

ONNX Runtime's ``session.set_denormal_as_zero`` reaches the threads of its own pool. Of the callers' threads, which do
a share of the work, it reaches one: that which makes the first session of the process, and there it stays set, so that
numpy loses denormals, too. Here the floating-point environment of the calling thread is set for a run and put back.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Iterator

KEY = "session.set_denormal_as_zero"

# fenv_t on Linux, x86-64: 32 bytes, of which the last four are the register MXCSR. Its bits 6 and 15 read and write
# denormals as zero. ONNX Runtime, too, flushes on x86 alone.
SIZE, MXCSR, FLUSH = 32, 28, 0x8040
SUPPORTED = (platform.system(), platform.machine()) == ("Linux", "x86_64")
# PyDLL: the call is shorter than letting go of the interpreter's lock.
_libc = ctypes.PyDLL(None) if SUPPORTED else None


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put the thread's floating-point environment back as it was."""
    before = save()
    try:
        yield
    finally:
        restore(before)


def save() -> ctypes.Array[ctypes.c_char] | None:
    """Return the thread's floating-point environment, None where that isn't known."""
    if _libc is None:
        return None
    state = ctypes.create_string_buffer(SIZE)
    _libc.fegetenv(state)
    return state


def flush() -> ctypes.Array[ctypes.c_char] | None:
    """Flush denormals in this thread and return what to hand to :func:`restore`."""
    state = save()
    if state is not None and _libc is not None:
        flags = int.from_bytes(state.raw[MXCSR:], "little") | FLUSH
        _libc.fesetenv(state.raw[:MXCSR] + flags.to_bytes(4, "little"))
    return state


def restore(state: ctypes.Array[ctypes.c_char] | None) -> None:
    """Put back what :func:`flush` or :func:`save` returned."""
    if state is not None and _libc is not None:
        _libc.fesetenv(state)
