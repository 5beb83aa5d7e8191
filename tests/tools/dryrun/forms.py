"""Models of one attention node, float16 unless said otherwise: B4 S256, 12 heads of 64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

B, S, H, D, KV, PAST = 4, 256, 12, 64, 4, 256
MICROSOFT = "com.microsoft"
TYPES = {"f": TensorProto.FLOAT16, "i": TensorProto.INT32, "l": TensorProto.INT64, "b": TensorProto.BOOL}
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Form:
    """An operator with its inputs in order; a name that starts with ``-`` is an input that is left out.

    Attributes
    ----------
    inputs, outputs
        Type (a letter of TYPES) and shape by name.
    values
        Inputs whose values decide.
    """

    op_type: str
    domain: str
    inputs: Tensors
    outputs: Tensors
    attributes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)


def model_of(forms: Mapping[str, Form], float_type: int = TensorProto.FLOAT16) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of one node for each form, with the form's name, and the inputs whose values decide."""
    nodes, inputs, outputs, values = [], [], [], {}

    def info(name: str, what: tuple[str, tuple[int, ...]]) -> onnx.ValueInfoProto:
        kind = float_type if what[0] == "f" else TYPES[what[0]]
        return helper.make_tensor_value_info(name, kind, what[1])

    for title, form in forms.items():
        names = {name: "" if name.startswith("-") else f"{title}/{name}" for name in form.inputs}
        made = {name: f"{title}/{name}" for name in form.outputs}
        attributes = dict(form.attributes)
        nodes.append(
            helper.make_node(form.op_type, [*names.values()], [*made.values()], title, domain=form.domain, **attributes)
        )
        inputs += [info(names[name], what) for name, what in form.inputs.items() if names[name]]
        outputs += [info(made[name], what) for name, what in form.outputs.items()]
        values |= {names[name]: value for name, value in form.values.items()}
    graph = helper.make_graph(nodes, "forms", inputs, outputs)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), values


WIDE, NARROW = ("f", (B, S, H * D)), ("f", (B, S, KV * D))
QKV = {"q": WIDE, "k": WIDE, "v": WIDE}
Y = {"y": WIDE}
LENGTHS = np.array([256, 200, 100, 7])


def _attention(more: Tensors | None = None, qkv: Tensors = QKV, outputs: Tensors = Y, **attributes: Any) -> Form:
    heads = {} if len(qkv["q"][1]) == 4 else {"q_num_heads": H, "kv_num_heads": qkv["k"][1][2] // D}
    values = {name: LENGTHS for name in more or {} if name == "nonpad"}
    return Form("Attention", "", {**qkv, **(more or {})}, outputs, {**heads, **attributes}, values)


def _multi_head(more: Tensors | None = None, values: Mapping[str, np.ndarray] | None = None, **attributes: Any) -> Form:
    inputs = {**QKV, "-bias": ("f", ()), **(more or {})}
    return Form("MultiHeadAttention", MICROSOFT, inputs, Y, {"num_heads": H, **attributes}, values or {})


def _mask(*shape: int) -> Tensors:
    return {"mask": ("b", shape)}


def _grouped(kv_heads: int = H, length: int = S, past: int = 0, **attributes: Any) -> Form:
    cache = ("f", (B, kv_heads, past, D))
    total = length + past
    inputs: Tensors = {
        "q": ("f", (B, length, H * D)),
        "k": ("f", (B, length, kv_heads * D)),
        "v": ("f", (B, length, kv_heads * D)),
        "past_key" if past else "-past_key": cache,
        "past_value" if past else "-past_value": cache,
        "seqlens_k": ("i", (B,)),
        "total": ("i", ()),
    }
    present = ("f", (B, kv_heads, total, D))
    outputs = {"y": ("f", (B, length, H * D)), "present_key": present, "present_value": present}
    values = {"seqlens_k": np.full(B, total - 1, np.int32), "total": np.array(total, np.int32)}
    attributes = {"num_heads": H, "kv_num_heads": kv_heads, **attributes}
    return Form("GroupQueryAttention", MICROSOFT, inputs, outputs, attributes, values)


def _packed() -> Form:
    tokens = ("f", (B * S, H * D))
    inputs: Tensors = {
        **dict.fromkeys("qkv", tokens),
        "-bias": ("f", ()),
        "offset": ("i", (B, S)),
        "lengths": ("i", (B + 1,)),
    }
    values = {
        "offset": np.arange(B * S, dtype=np.int32).reshape(B, S),
        "lengths": (np.arange(B + 1) * S).astype(np.int32),
    }
    return Form("PackedMultiHeadAttention", MICROSOFT, inputs, {"y": tokens}, {"num_heads": H}, values)


def _decode() -> Form:
    step = {"q": ("f", (B, 1, H * D)), "k": ("f", (B, 1, KV * D)), "v": ("f", (B, 1, KV * D))}
    cache, present = ("f", (B, KV, PAST, D)), ("f", (B, KV, PAST + 1, D))
    more = {"-mask": ("b", ()), "past_key": cache, "past_value": cache}
    outputs = {"y": step["q"], "present_key": present, "present_value": present}
    return _attention(more, step, outputs)


HEADS = ("f", (B, H, S, D))
KEYS = {"keys": ("i", (B,))}
FORMS = {
    "Attention none": _attention(),
    "Attention causal": _attention(is_causal=1),
    "Attention softcap": _attention(softcap=30.0),
    "Attention bool [B,1,S,S]": _attention(_mask(B, 1, S, S)),
    "Attention bool [B,1,S,S] causal": _attention(_mask(B, 1, S, S), is_causal=1),
    "Attention bool [S,S]": _attention(_mask(S, S)),
    "Attention bool [B,1,1,S]": _attention(_mask(B, 1, 1, S)),
    "Attention bias": _attention({"bias": ("f", (B, 1, S, S))}),
    "Attention lengths": _attention({"-mask": ("b", ()), "-pk": ("f", ()), "-pv": ("f", ()), "nonpad": ("l", (B,))}),
    "Attention lengths causal": _attention(
        {"-mask": ("b", ()), "-pk": ("f", ()), "-pv": ("f", ()), "nonpad": ("l", (B,))}, is_causal=1
    ),
    "Attention 4-D causal": _attention(None, dict.fromkeys("qkv", HEADS), {"y": HEADS}, is_causal=1),
    "Attention 4 KV heads causal": _attention(None, {"q": WIDE, "k": NARROW, "v": NARROW}, is_causal=1),
    "Attention decode": _decode(),
    "MHA none": _multi_head(),
    "MHA causal": _multi_head(unidirectional=1),
    "MHA lengths": _multi_head(KEYS, {"keys": LENGTHS.astype(np.int32)}),
    "MHA lengths causal": _multi_head(KEYS, {"keys": LENGTHS.astype(np.int32)}, unidirectional=1),
    "MHA 2D mask": _multi_head({"keys": ("i", (B, S))}),
    "MHA [3B+2]": _multi_head(
        {"keys": ("i", (3 * B + 2,))},
        {"keys": np.concatenate([LENGTHS, np.arange(B + 1) * S, np.arange(B + 1) * S]).astype(np.int32)},
    ),
    "MHA bias": _multi_head({"-keys": ("i", ()), "rel": ("f", (B, 1, S, S))}),
    "GQA causal": _grouped(),
    "GQA causal=0": _grouped(causal=0),
    "GQA window": _grouped(local_window_size=64),
    "GQA decode, 4 KV heads": _grouped(KV, 1, PAST),
    "PackedMHA": _packed(),
}
BROADCAST = "Attention bool [B,1,1,S]"
# Without the one that no kernel takes.
RUNNING = {name: form for name, form in FORMS.items() if name != BROADCAST}
