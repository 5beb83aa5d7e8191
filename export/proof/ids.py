"""How large the numbers of an input may be: as many as the tables have rows that they are looked up in."""

from __future__ import annotations

import onnx_ir as ir

# Which table each input of an operator is looked up in, and on which axis (None: the operator's attribute).
LOOKUPS: dict[tuple[str, str], dict[int, tuple[int, int | None]]] = {
    ("", "Gather"): {1: (0, None)},
    ("", "RotaryEmbedding"): {3: (1, 0)},
    ("com.microsoft", "Gather"): {1: (0, None)},
    ("com.microsoft", "RotaryEmbedding"): {1: (2, 0)},
    ("com.microsoft", "EmbedLayerNormalization"): {0: (2, 0), 1: (4, 0), 8: (3, 0)},
    ("com.microsoft", "GatherBlockQuantized"): {1: (0, None)},
}
# Operators whose result holds the numbers of their first input and no larger ones.
KEEPS = ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Slice", "Transpose")


def bound_of(value: ir.Value) -> int | None:
    """Return how many rows the smallest table has that a value is looked up in; None if it is looked up in none."""
    bounds, seen, waiting = [], {value}, [value]
    while waiting:
        for node, place in waiting.pop().uses():
            lookup = LOOKUPS.get((node.domain, node.op_type), {}).get(place)
            if lookup is not None:
                bounds.append(_rows(node, *lookup))
            elif node.domain == "" and node.op_type in KEEPS and place == 0 and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                waiting.append(node.outputs[0])
    return min((bound for bound in bounds if bound), default=None)


def _rows(node: ir.Node, table: int, axis: int | None) -> int | None:
    data = node.inputs[table] if table < len(node.inputs) else None
    if data is None or data.shape is None or not len(data.shape):
        return None
    if axis is None:
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    rows = data.shape[axis]
    return rows if isinstance(rows, int) else None
