"""From a file or bytes to an ONNX Runtime session, or one line that says what is wrong with them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import onnxruntime as ort

from .errors import MaskportError, ModelError
from .messages import plain
from .model_file import look

# What ONNX Runtime says when it can't load -> what is wrong and what to do. The first pattern that is found counts;
# its groups fill the braces.
LOAD_FAULTS = (
    (
        r"[Pp]rotobuf parsing failed|ORT model verification failed",
        "is damaged, cut short, or no ONNX model; make it again",
    ),
    (r"No graph was found", "is no ONNX model: it has no graph"),
    (
        r"initializer: (.+?)\. Error: .*escapes working directory.*\"([^\"]+)\"",
        "keeps the data of {0!r} in another file, which bytes alone can't reach; give the model's path",
    ),
    (
        r"initializer: (.+?)\. Error: .*does not exist: \"([^\"]+)\"",
        "misses its external data: {0!r} is in {1}, which isn't there; keep the model and its data in one folder",
    ),
    (
        r"initializer: (.+?)\. Error: .*escapes model directory\. External data path: \"([^\"]+)\"",
        "has external data outside its folder, which is refused: {0!r} is in {1!r}; put the data, and no link to it, "
        "beside the model",
    ),
    (
        r"initializer: (.+?)\. Error: .*Absolute path not allowed",
        "has external data at an absolute path, which is refused: {0!r}; put the data beside the model and "
        "save it with a relative location",
    ),
    (
        r"External initializer: (.+?) offset: (\S+) size to read: (\S+) given file_length: (\S+)",
        "has external data that is cut short or damaged: {0!r} wants {2} bytes at {1} of a file of {3} bytes; "
        "fetch the data again",
    ),
    (r"External data location cannot be empty", "has external data without a location; make it again"),
    (r"regular file: (\S+)", "has external data in {0}, which is no file"),
    (
        r"model_path must not be empty",
        "keeps data in another file, which bytes alone can't reach; give the model's path",
    ),
    (
        r"Opset (\d+) is under development",
        "uses opset {0}, which is too new for ONNX Runtime {ort}; export with a lower opset_version, or "
        "update ONNX Runtime",
    ),
    (
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        "has ONNX IR version {0}, ONNX Runtime {ort} reads up to {1}; save it with an older onnx, "
        "or update ONNX Runtime",
    ),
    (
        r"No Op registered for (\S+) with domain_version of (\d+)",
        "uses the operator {0} of opset {1}, which ONNX Runtime {ort} doesn't know; update ONNX Runtime, "
        "or export without it",
    ),
    (
        r"Fatal error: (\S+?)\(-?\d+\) is not a registered",
        "uses the operator {0}, which ONNX Runtime {ort} doesn't know; update ONNX Runtime, or export without it",
    ),
    (
        r"Could not find an implementation for (\S+) node with name '(.*?)'",
        "has a node that the device's providers don't implement: {0} {1!r}; use another device or element type",
    ),
    (r"(?:Permission denied|errno 13)", "can't be read: permission denied"),
    (r"[Uu]nknown provider option:?\s*\"?(\S+?)\"?(?:\s|$)", "can't be loaded: cuda_options has {0}, which is unknown"),
)


def load(
    model: str | os.PathLike[str] | bytes,
    options: ort.SessionOptions,
    providers: list[str | tuple[str, dict[str, str]]],
    start: Callable[..., Any] = ort.InferenceSession,
) -> ort.InferenceSession:
    """Return an ONNX Runtime session that never falls back to another device.

    Parameters
    ----------
    model, options, providers
        As ONNX Runtime takes them.
    start
        Makes the session, with the arguments of ONNX Runtime's own.

    Raises
    ------
    ModelError
        If there is no such file, or it is no model that ONNX Runtime can load.
    """
    what = look(model)
    source = model if isinstance(model, bytes) else os.fspath(model)
    try:
        # The Python class repeats a failed CUDA run on the CPU unless it is told not to.
        session = start(source, sess_options=options, providers=providers, enable_fallback=0)
    except MaskportError:
        raise
    except Exception as error:
        raise ModelError(f"{what} {load_fault(str(error)) or f'is refused by ONNX Runtime: {plain(error)}'}") from error
    session.disable_fallback()
    return session


def load_fault(text: str) -> str | None:
    """Return what a message of ONNX Runtime means for the user, None if it is not in the table."""
    for pattern, meaning in LOAD_FAULTS:
        if found := re.search(pattern, text, re.DOTALL):
            return meaning.format(*found.groups(), ort=ort.__version__)
    return None
