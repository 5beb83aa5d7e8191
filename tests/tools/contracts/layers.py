"""Attention layers with faults: what is written in place of other text in every layer of a small right model."""

from __future__ import annotations

import onnx

from ..attention_graphs import LAYER, attention

NEAR = "windowI = And (beforeI, nearI)"
# A reach of 0 opens the window.
OPEN = """noneI = Equal (reachI, zero)
    openI = Or (nearI, noneI)
    windowI = And (beforeI, openI)"""
MASK = "attendI = And (windowI, keysI)"
KEYS = "keysI = Unsqueeze (realI, middle)"
FILL = "maskedI = Where (attendI, scoresI, least)"
HEADS = "headsI = Reshape (xI, split)"
QUERY = "queryI = Transpose <perm = [0, 2, 1, 3]> (headsI)"
KEY = "keyI = Transpose <perm = [0, 2, 3, 1]> (headsI)"
BACK = "backI = Transpose <perm = [0, 2, 1, 3]> (mixedI)"

# By name: pairs of text.
FAULTS = {
    "mask dropped": [(MASK, "attendI = Or (windowI, windowI)")],
    "mask inverted": [(KEYS, "padI = Not (realI)\n keysI = Unsqueeze (padI, middle)")],
    "left padding taken for right": [
        (
            KEYS,
            """countedI = Cast <to = 7> (realI)
            lengthsI = ReduceSum <keepdims = 1> (countedI, first)
            insideI = Less (columnsI, lengthsI)
            keysI = Unsqueeze (insideI, middle)""",
        )
    ],
    "padding of row 0": [(KEYS, "rowI = Slice (realI, start, first, start)\n keysI = Unsqueeze (rowI, middle)")],
    "weak fill": [
        (
            FILL,
            """zeroI = Constant <value = float {0}> ()
            weakI = Constant <value = float {-10}> ()
            fillI = Where (attendI, zeroI, weakI)
            maskedI = Add (scoresI, fillI)""",
        )
    ],
    "multiplied": [(FILL, "keptI = Cast <to = 1> (attendI)\n maskedI = Mul (scoresI, keptI)")],
    "empty rows": [(FILL, "lowI = Constant <value_float = -inf> ()\n maskedI = Where (attendI, scoresI, lowI)")],
    "half fill": [
        (
            FILL,
            """hiddenI = Not (attendI)
            halfI = Cast <to = 10> (hiddenI)
            hugeI = Constant <value_float = -1e9> ()
            lowI = Cast <to = 10> (hugeI)
            fillI = Mul (halfI, lowI)
            wideI = Cast <to = 1> (fillI)
            maskedI = Add (scoresI, wideI)""",
        )
    ],
    "baked length": [(HEADS, "fixedI = Constant <value_ints = [0, 7, 2, 4]> ()\n headsI = Reshape (xI, fixedI)")],
    "baked batch": [(HEADS, "fixedI = Constant <value_ints = [2, -1, 2, 4]> ()\n headsI = Reshape (xI, fixedI)")],
    "over the batch": [
        (QUERY, "queryI = Transpose <perm = [1, 2, 0, 3]> (headsI)"),
        (KEY, "keyI = Transpose <perm = [1, 2, 3, 0]> (headsI)"),
        (FILL, "maskedI = Identity (scoresI)"),
        (BACK, "backI = Transpose <perm = [2, 0, 1, 3]> (mixedI)"),
    ],
}


def layers(fault: str | None = None, *windows: int, count: int = 2) -> onnx.ModelProto:
    """Return a model of some layers, each with a fault; a window of 0 is none, and so are all by default."""
    windows = windows or (0,) * count
    layer = LAYER if all(windows) else LAYER.replace(NEAR, OPEN)
    for old, new in FAULTS.get(fault or "", ()):
        assert old in layer
        layer = layer.replace(old, new)
    return attention(*windows, replace=(LAYER, layer))
