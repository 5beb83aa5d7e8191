"""From a device's name to ONNX Runtime's execution providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .cuda import cuda_problem
from .errors import DeviceUnavailable, InputError

CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"


class Choice(NamedTuple):
    """The device that was taken, and why."""

    device: str
    provider: str
    providers: list[str | tuple[str, dict[str, str]]]
    why: str


def choose(device: str, cuda_options: Mapping[str, Any] | None = None) -> Choice:
    """Return the device to run on and its execution providers, the wanted one first.

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"``: CUDA where it can be used, else the CPU.
    cuda_options
        Options of ONNX Runtime's CUDA provider.

    Raises
    ------
    DeviceUnavailable
        If the device can't be used on this machine.
    InputError
        If `device` is none of these, or the options are for another device.
    """
    name, colon, index = str(device).partition(":")
    known = name in ("auto", "cpu", "cuda") if not colon else name == "cuda" and index.isascii() and index.isdecimal()
    if not isinstance(device, str) or not known:
        raise InputError(f"device {device!r} is unknown; use 'auto', 'cpu', 'cuda' or 'cuda:N'")
    options = {str(key): str(value) for key, value in (cuda_options or {}).items()}
    if device == "cpu":
        if options:
            raise InputError(f"cuda_options ({', '.join(options)}) are for CUDA, and device is 'cpu'")
        return Choice("cpu", CPU_PROVIDER, [CPU_PROVIDER], "the CPU was asked for")
    if "device_id" in options:
        raise InputError("cuda_options has device_id; name the device as 'cuda:N'")
    number = int(index or 0)
    problem = cuda_problem(number)
    if problem is None:
        why = "CUDA can be used" if device == "auto" else "CUDA was asked for"
        wanted = (CUDA_PROVIDER, {**options, "device_id": str(number)})
        return Choice(f"cuda:{number}", CUDA_PROVIDER, [wanted, CPU_PROVIDER], why)
    if device == "auto":
        return Choice("cpu", CPU_PROVIDER, [CPU_PROVIDER], f"CUDA can't be used: {problem}")
    raise DeviceUnavailable(f"device {device!r} can't be used: {problem}")
