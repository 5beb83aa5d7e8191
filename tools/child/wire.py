"""Arrays, and what is said of them, as bytes over a pipe.

A message is the length of its head, the head as JSON, and the memory of its arrays one after the other. Nothing in it
is code, so that a process in which a model did what it liked can say nothing but numbers and text.
"""

from __future__ import annotations

import json
import struct
from typing import IO, Any

import numpy as np

_LENGTH = struct.Struct("<Q")


def send(stream: IO[bytes], said: Any, value: Any = None) -> None:
    """Write a message: something of JSON's types, and a value.

    Parameters
    ----------
    said
        Of JSON's types.
    value
        An array (also of strings, or of an element type of ml_dtypes), None, a number, a text, or lists and dicts of
        such: what ONNX Runtime takes and gives.
    """
    buffers: list[np.ndarray] = []
    shape = _shape(value, buffers)
    head = json.dumps([said, shape, [buffer.nbytes for buffer in buffers]]).encode()
    _write(stream, _LENGTH.pack(len(head)) + head)
    for buffer in buffers:
        _write(stream, buffer)


def receive(stream: IO[bytes]) -> tuple[Any, Any]:
    """Read a message.

    Raises
    ------
    EOFError
        If the other side has ended.
    """
    (length,) = _LENGTH.unpack(_read(stream, _LENGTH.size).tobytes())
    said, shape, sizes = json.loads(_read(stream, length).tobytes())
    return said, _value(shape, iter([_read(stream, size) for size in sizes]))


def _shape(value: Any, buffers: list[np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OU":
            return ["text", value.shape, value.reshape(-1).tolist()]
        # The reshaped is one piece of memory even of an array without axes, and every element type is bytes.
        buffers.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        # The element types of ml_dtypes have no code that numpy reads.
        return ["array", value.shape, value.dtype.name if value.dtype.kind == "V" else value.dtype.str]
    if isinstance(value, list | tuple):
        return ["list", [_shape(item, buffers) for item in value]]
    if isinstance(value, dict):
        return ["dict", [[key, _shape(item, buffers)] for key, item in value.items()]]
    return ["plain", value]


def _value(shape: Any, buffers: Any) -> Any:
    kind, *told = shape
    if kind == "array":
        return next(buffers).view(_dtype(told[1])).reshape(told[0])
    if kind == "text":
        array = np.empty(len(told[1]), object)
        array[:] = told[1]
        return array.reshape(told[0])
    if kind == "list":
        return [_value(item, buffers) for item in told[0]]
    if kind == "dict":
        return {key: _value(item, buffers) for key, item in told[0]}
    return told[0]


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _write(stream: IO[bytes], data: Any) -> None:
    view = memoryview(data)
    while view.nbytes:
        view = view[stream.write(view) :]


def _read(stream: Any, size: int) -> np.ndarray:
    array = np.empty(size, np.uint8)
    view = array.data
    while view.nbytes:
        count = stream.readinto(view)
        if not count:
            raise EOFError
        view = view[count:]
    return array
