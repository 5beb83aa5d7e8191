"""The runtime's session, whose model is in a process of its own."""

from __future__ import annotations

import functools
import os
from typing import Any

from ...runtime import Session
from . import TIMEOUT
from .inference import ChildInference


class ChildSession(Session):
    """A session that outlives its model: what crashes, hangs or takes all memory is told, and the next run is run.

    Inputs are checked here as any session does, and only arrays are taken. Each run costs a copy of them.

    Parameters
    ----------
    model, device, options
        As of :class:`maskport.runtime.Session`.
    timeout
        The longest that loading or a run may take, in seconds.

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
        self._start = functools.partial(ChildInference, timeout=timeout)
        super().__init__(model, device, **options)
