"""The runtime's session, whose model is in a process of its own."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from ...export.proof.side import NO_KERNEL
from ...runtime import Session
from . import TIMEOUT
from .inference import CPU, ChildInference


class ChildSession(Session):
    """A session that outlives its model: what crashes, hangs or takes all memory is told, and the next run is run.

    Inputs are checked here as any session does, and only arrays are taken. Each run costs a copy of them.

    Parameters
    ----------
    model, device, options
        As of :class:`maskport.runtime.Session`.
    timeout
        The longest that loading or a run may take, in seconds.

    Attributes
    ----------
    twins : bool
        Whether executable twins run it, in this process: the CPU has no kernel for one of its operators.

    Raises
    ------
    Crashed
        If the model ends its process, or takes too long: when it is loaded, or at a run.
    ModelError, DeviceUnavailable, InputError
        As of the runtime's.
    """

    def __init__(
        self, model: str | os.PathLike[str] | bytes, device: str = "auto", *, timeout: float = TIMEOUT, **options: Any
    ) -> None:
        self._start = functools.partial(_started, timeout=timeout)
        super().__init__(model, device, **options)
        self.twins = not isinstance(self._session, ChildInference)


def _started(source: str | bytes, *, providers: Sequence[Any], timeout: float, **given: Any) -> Any:
    try:
        return ChildInference(source, providers=providers, timeout=timeout, **given)
    except Exception as error:
        if type(error).__name__ != NO_KERNEL or providers[0] != CPU:
            raise
        try:
            from .twin import TwinInference

            return TwinInference(source)
        except (ImportError, NotImplementedError):
            # What the CPU lacks is the better reason.
            raise error from None
