"""Where contracts run a file: in processes of its own, on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...export.proof.side import Place
from ...runtime import DeviceUnavailable
from ...runtime.device import choose
from . import TIMEOUT
from .inference import ChildInference


@dataclass(frozen=True)
class ChildPlace(Place):
    """A device, whose sessions are each in a process of its own.

    Attributes
    ----------
    device
        As of :class:`maskport.runtime.Session`.
    timeout
        The longest that loading or a run may take, in seconds.
    crashes
        How processes ended so far.
    """

    device: str = "cpu"
    timeout: float = TIMEOUT
    crashes: list[str] = field(default_factory=list)

    @classmethod
    def on(cls, device: str = "cpu", timeout: float = TIMEOUT) -> ChildPlace:
        """Return a place; twins stand in on the CPU alone, for on a device it is the device that is asked about.

        Raises
        ------
        DeviceUnavailable, InputError
            As of :class:`maskport.runtime.Session`.
        """
        choice = choose(device)
        crashes: list[str] = []

        def start(source: str | bytes, options: Any, providers: Sequence[Any] = ()) -> Any:
            session = ChildInference(source, options, choice.providers, timeout=timeout, crashes=crashes)
            if session.get_providers()[0] != choice.provider:
                raise DeviceUnavailable(
                    f"device {device!r} can't be used: ONNX Runtime didn't start {choice.provider}; its log says why"
                )
            return session

        on_cpu = choice.device == "cpu"
        return cls("the CPU" if on_cpu else choice.device, start, on_cpu, device, timeout, crashes)
