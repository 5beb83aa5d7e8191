"""What ONNX Runtime's own session offers, asked of a process in which it is."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from ...runtime.options import CONFIG
from ..errors import Crashed
from . import TIMEOUT, wire
from .process import Process

CPU = "CPUExecutionProvider"
# What of ONNX Runtime's options is told to the process.
OPTIONS = ("intra_op_num_threads", "inter_op_num_threads", "graph_optimization_level", "log_severity_level")
# Threads that spin until the next run take the time in which it is drawn and the last is compared.
WAITS = {"session.intra_op.allow_spinning": "0"}


@dataclass(frozen=True)
class Declared:
    """An input or output, as ONNX Runtime tells it."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class Meta:
    """What a file says of itself."""

    custom_metadata_map: dict[str, str]


class ChildInference:
    """A session of ONNX Runtime in a process of its own, with the methods that running a model takes.

    Its numbers are those of a session in this process. A process that ended is started anew by the next run.

    Parameters
    ----------
    source
        Path or bytes of a model.
    sess_options
        ONNX Runtime's options, of which those of this project are told to the process.
    providers
        Names of execution providers, or pairs of a name and options.
    enable_fallback
        Nothing: it never falls back.
    timeout
        The longest that loading or a run may take, in seconds.
    crashes
        Where it is written down when the process ends.

    Raises
    ------
    Crashed
        If the process ends while it loads the model, or takes too long.
    Exception
        What ONNX Runtime raises if it can't load the model: the same class and message.
    """

    def __init__(
        self,
        source: str | bytes,
        sess_options: ort.SessionOptions,
        providers: Sequence[str | tuple[str, dict[str, str]]],
        enable_fallback: int = 0,
        *,
        timeout: float = TIMEOUT,
        crashes: list[str] | None = None,
    ) -> None:
        path = None if isinstance(source, bytes) else str(Path(source).absolute())
        self._request = {
            "path": path,
            "providers": list(providers),
            "options": {name: int(getattr(sess_options, name)) for name in OPTIONS},
            "config": {**WAITS, **_entries(sess_options)},
        }
        self._bytes = np.frombuffer(source, np.uint8) if isinstance(source, bytes) else None
        self._name = "the model" if path is None else os.path.relpath(path)
        self._timeout, self._crashes, self._hung = timeout, [] if crashes is None else crashes, False
        on = "the CPU" if providers[0] == CPU else f"the {providers[0][0]}"
        self._where = f"ONNX Runtime {ort.__version__} on {on}"
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._told = self._started()

    def get_inputs(self) -> list[Declared]:
        """Return the inputs in the order of the file."""
        return [Declared(*told) for told in self._told["inputs"]]

    def get_outputs(self) -> list[Declared]:
        """Return the outputs in the order of the file."""
        return [Declared(*told) for told in self._told["outputs"]]

    def get_modelmeta(self) -> Meta:
        """Return what the file says of itself."""
        return Meta(self._told["metadata"])

    def get_providers(self) -> list[str]:
        """Return the execution providers that were started, the first first."""
        return list(self._told["providers"])

    def disable_fallback(self) -> None:
        """Do nothing: it never falls back."""

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model once.

        Parameters
        ----------
        names
            Of the outputs to give; None for all.
        feeds
            Arrays by input name; those of bfloat16 are ml_dtypes'.

        Raises
        ------
        Crashed
            If the process ends, or takes too long.
        Exception
            What ONNX Runtime raises.
        """
        with self._lock:
            if self._hung:
                raise Crashed(f"{self._name} isn't run again: it took longer than {self._timeout:g} s before")
            shapes = [f"{name} {list(value.shape)}" for name, value in feeds.items() if isinstance(value, np.ndarray)]
            if self._process is None:
                self._started()
            wanted = list(names) if names else [told[0] for told in self._told["outputs"]]
            return list(self._ask(wanted, dict(feeds), f"on {', '.join(shapes) or 'no inputs'}")[1])

    def _started(self) -> dict[str, Any]:
        self._process = process = Process(f"{__package__}.serve")
        # Not `self`, which would then never be let go of.
        self._closed = weakref.finalize(self, process.close)
        return dict(self._ask(self._request, self._bytes, "when it is loaded")[0])

    def _ask(self, said: Any, value: Any, when: str) -> tuple[Any, Any]:
        process = self._process
        assert process is not None
        try:
            wire.send(process.to, said, value)
            if not process.answers(self._timeout):
                self._hung = True
                raise self._over(f"takes longer than {self._timeout:g} s", when)
            answer, value = wire.receive(process.of)
        except (BrokenPipeError, EOFError):
            how, last = process.end()
            raise self._over(f"ends the process with {how}", when, f": {last}" if last else "") from None
        except BaseException:
            # Half an answer would be taken for the next.
            self._let_go()
            raise
        if isinstance(answer, dict) and "error" in answer:
            # By its class it is told what the device can't do.
            known = getattr(ort.capi.onnxruntime_pybind11_state, answer["error"], RuntimeError)
            raise known(answer["text"])
        return answer, value

    def _over(self, what: str, when: str, last: str = "") -> Crashed:
        self._let_go()
        told = f"{self._name} {what} {when} ({self._where}){last}"
        self._crashes.append(told)
        return Crashed(told)

    def _let_go(self) -> None:
        self._process = None
        self._closed()


def _entries(options: ort.SessionOptions) -> dict[str, str]:
    """Return the entries that were set of those that this project sets."""
    found = {}
    for key in CONFIG:
        try:
            found[key] = options.get_session_config_entry(key)
        except RuntimeError:  # It isn't set.
            continue
    return found
