"""A model that is ready to run."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from . import denormals
from .assumptions import read_assumptions
from .binding import run_bound
from .device import choose
from .element_types import DTYPES, STRING
from .errors import DeviceUnavailable, InputError, MaskportError, ModelError
from .inputs import DeclaredValue, Inputs, is_torch
from .load import load
from .messages import plain
from .options import session_options
from .packages import package_conflict
from .packing import packing_inputs, read_packing
from .placement import PlacedNode, placed_nodes

logger = logging.getLogger(__name__)


class Session:
    """A model on a device: inputs and outputs by name, checked before they are run.

    Parameters
    ----------
    model
        Path of an ONNX file, or its bytes. External data must lie in the file's folder.
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"``: CUDA where it can be used, else the CPU.
        What is named is what runs: no device falls back to another in silence.
    threads
        Number of threads that one node may use; None for one per core.
    cuda_options
        Options of ONNX Runtime's CUDA provider, such as ``{"sdpa_kernel": 2}``. Unused where ``"auto"`` takes the CPU.
    optimization
        How far ONNX Runtime optimizes the graph: ``"none"``, ``"basic"``, ``"extended"``, ``"layout"`` or ``"all"``.
    optimized_path
        Where ONNX Runtime writes the optimized model; None for nowhere.
    config
        Configuration entries of ONNX Runtime, such as ``{"session.intra_op.allow_spinning": "0"}``. It takes
        unknown keys in silence.
    verbose
        Let ONNX Runtime print its warnings.

    Attributes
    ----------
    device : str
        ``"cpu"`` or ``"cuda:N"``: where the model runs.
    why : str
        Why that device was taken; where ``"auto"`` took the CPU, why CUDA can't be used. Logged as information.
    inputs, outputs : tuple of DeclaredValue
        Name, type and shape of each.
    computed : tuple of DeclaredValue
        The file's inputs that the session computes from the others: they are not among `inputs`, and may be left out.
    input_names, output_names : list of str
        In the order of the file.
    metadata : dict of str to str
        The file's metadata properties.

    Raises
    ------
    ModelError
        If the file can't be read, ONNX Runtime can't load it, or it assumes what this version can't check.
    DeviceUnavailable
        If the device can't be used on this machine.
    InputError
        If an argument is none of those above.

    Notes
    -----
    **Threads.** One session may be run by many threads at once; a run shares nothing with another.

    **Denormals** are flushed to zero while a model runs: masked positions leave denormal probabilities that slow the
    following product. The caller's own arithmetic keeps them, but on other systems than Linux on x86-64, where ONNX
    Runtime's way is taken: the thread that makes the process's first session flushes them from then on, and the
    threads that were there before never do. ``config={"session.set_denormal_as_zero": "0"}`` keeps denormals.

    **Assumptions.** If the file takes facts for granted (``maskport.assumes``), each run checks them on the host; for
    a mask on a CUDA device this costs a copy of the mask and a wait.

    **Packing.** If the file takes the places of the real tokens as inputs (``maskport.packing``), the session computes
    them from the mask on the host, unless they are given. A mask on a CUDA device is copied to the host for this, with
    a wait: give it as a numpy array or a tensor on the CPU.

    Examples
    --------
    >>> session = Session("model.onnx", device="cpu")  # doctest: +SKIP
    >>> session.run({"src": src, "attention_mask": mask})["output"]  # doctest: +SKIP
    """

    # Makes ONNX Runtime's session; a subclass may have it elsewhere.
    _start: Callable[..., Any] = ort.InferenceSession

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        device: str = "auto",
        *,
        threads: int | None = None,
        cuda_options: Mapping[str, Any] | None = None,
        optimization: str = "all",
        optimized_path: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        if conflict := package_conflict():
            warnings.warn(conflict, RuntimeWarning, stacklevel=2)
        options = session_options(threads, optimization, optimized_path, config, verbose)
        choice = choose(device, cuda_options)
        with denormals.kept():
            self._session = load(model, options, choice.providers, self._start)
        self._flush = options.get_session_config_entry(denormals.KEY) == "1"
        if self._session.get_providers()[0] != choice.provider:
            raise DeviceUnavailable(
                f"device {device!r} can't be used: ONNX Runtime didn't start {choice.provider}; its log says why"
            )
        self.device, self.why = choice.device, choice.why
        logger.info("the session runs on %s: %s", self.device, self.why)
        inputs = _declared(self._session.get_inputs())
        self.outputs = _declared(self._session.get_outputs())
        self.output_names = [item.name for item in self.outputs]
        # Not what numpy has no type for; sequences and maps come as lists and dicts.
        self._torch_only = {
            item.name: item.type for item in self.outputs if item.type.startswith("tensor(") and item.type not in _NUMPY
        }
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)
        self._packing = read_packing(self.metadata, inputs)
        told = packing_inputs(self._packing)
        self.inputs = tuple(item for item in inputs if item.name not in told)
        self.computed = tuple(item for item in inputs if item.name in told)
        self.input_names = [item.name for item in self.inputs]
        self._inputs, self._all_inputs = Inputs(self.inputs, self.device), Inputs(inputs, self.device)
        self._assumptions = read_assumptions(self.metadata, self.inputs)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{item.name}: {item}" for item in self.inputs)
        return f"Session({inputs} -> {', '.join(self.output_names)}; on {self.device}: {self.why})"

    def run(self, inputs: Mapping[str, Any], outputs: Iterable[str] | None = None) -> dict[str, Any]:
        """Run the model once.

        Parameters
        ----------
        inputs
            Every input by name: numpy arrays or torch tensors. If one is a torch tensor, so are the outputs, on the
            same device; tensors on the session's CUDA device are read where they are, and the outputs stay there.
            Those of `computed` may be left out.
        outputs
            Names of the outputs to compute; None for all.

        Returns
        -------
        dict
            The outputs by name.

        Raises
        ------
        InputError
            If a name is unknown or missing, or a value's type, rank or size isn't what the model declares.
        AssumptionViolated
            If an input breaks a fact that the file takes for granted.
        ModelError
            If ONNX Runtime fails while it runs.
        """
        names = self.output_names if outputs is None else self._chosen(outputs)
        values = self._packed(inputs) if self._packing else self._inputs.ready(inputs)
        for assumption in self._assumptions:
            assumption.verify(_on_host(values[assumption.input]))
        bound = any(type(value) is not np.ndarray for value in values.values())
        if self._torch_only and not bound and (lost := self._torch_only.keys() & names):
            name = min(lost)
            raise InputError(
                f"output {name!r} is {self._torch_only[name]}, which numpy doesn't have; give torch tensors"
            )
        before = denormals.flush() if self._flush else None
        try:
            if bound:
                return run_bound(self._session, values, names)
            return dict(zip(names, self._session.run(names, values), strict=True))
        except MaskportError:
            raise
        except Exception as error:
            shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in values.items())
            raise ModelError(f"ONNX Runtime failed on {shapes}: {plain(error)}") from error
        finally:
            denormals.restore(before)

    def placement(self) -> list[PlacedNode]:
        """Say which node runs on which execution provider.

        Returns
        -------
        list of PlacedNode
            The graph's nodes when ONNX Runtime assigned them: after its basic optimizations and before a provider
            fuses its own nodes.
        """
        return placed_nodes(self._session)

    def _packed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Check the inputs of a packed model; compute those that tell its tokens unless they are given."""
        told = isinstance(inputs, Mapping) and any(item.name in inputs for item in self.computed)
        values = (self._all_inputs if told else self._inputs).ready(inputs)
        for packed in self._packing:
            if not told:
                values |= packed.inputs(_on_host(values[packed.mask]))
                continue
            related = [values[name] for name in (packed.mask, packed.tokens, packed.lengths)]
            # What is on the device is the caller's word: to read it would cost what packing on the host saves.
            if all(not is_torch(value) or value.device.type == "cpu" for value in related):
                packed.check(*map(_on_host, related))
        return values

    def _chosen(self, outputs: Iterable[str]) -> list[str]:
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        unknown = [str(name) for name in names if name not in self.output_names]
        if unknown or not names:
            what = f"outputs names {', '.join(unknown)}" if unknown else "outputs is empty"
            raise InputError(f"{what}; the model's outputs are {', '.join(self.output_names)}")
        return names


_NUMPY = {*DTYPES, STRING}


def _declared(nodes: Iterable[Any]) -> tuple[DeclaredValue, ...]:
    return tuple(DeclaredValue(node.name, node.type, tuple(node.shape)) for node in nodes)


def _on_host(value: Any) -> np.ndarray:
    if not is_torch(value):
        return value
    # numpy has no bfloat16, and every bfloat16 is a float32.
    host = value.cpu()
    array: np.ndarray = (host.float() if str(host.dtype) == "torch.bfloat16" else host).numpy()
    return array
