"""ONNX Runtime's own attention operators are read by their own rules: as its kernels on the CPU attend.

Queries and keys are zero, so that every attended key weighs alike (but for a bias), and the values are the identity, so
that the output is the weights.

Dimensions: B batch, S queries, L keys of this run, P keys in the cache, T = P + L.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import pytest
from maskport.export import inspect
from maskport.export.report import SiteReport
from maskport.export.symbolic import operators
from maskport.export.symbolic import terms as t
from maskport.models import Adjacency, Causal, Dense, Full, KeyPadding, Mask, Prefix, Q, Row, Window, past

ort = pytest.importorskip("onnxruntime")

HEADS, SIZE = 2, 8
HIDDEN = HEADS * SIZE
BATCH, LENGTH, PAST = 3, 7, 2
F32, F16, I32, I64 = (getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "INT32", "INT64"))

# What models may take: type and dimensions.
INPUTS: dict[str, tuple[int, Sequence[str | int]]] = {
    "q": (F32, ["B", "S", HIDDEN]),
    "k": (F32, ["B", "S", HIDDEN]),
    "v": (F32, ["B", "S", HIDDEN]),
    "kl": (F32, ["B", "L", HIDDEN]),
    "vl": (F32, ["B", "L", HIDDEN]),
    "kn": (F32, ["B", HEADS, "L", SIZE]),
    "vn": (F32, ["B", HEADS, "L", SIZE]),
    "qkv": (F32, ["B", "S", HEADS, 3, SIZE]),
    "kv": (F32, ["B", "L", HEADS, 2, SIZE]),
    "past_k": (F32, ["B", HEADS, "P", SIZE]),
    "past_v": (F32, ["B", HEADS, "P", SIZE]),
    "past_length": (I32, [1]),
    "lengths": (I32, ["B"]),
    "cumulative": (I32, ["3*B + 2"]),
    "mask": (I32, ["B", "S"]),
    "mask_l": (I32, ["B", "L"]),
    "mask_t": (I32, ["B", "T"]),
    "mask3": (I32, ["B", "S", "S"]),
    "mask4": (I32, ["B", 1, "S", "S"]),
    "m": (I64, ["B", "S"]),
    "dense": (onnx.TensorProto.BOOL, [1, HEADS, "S", "S"]),
    "bias": (F32, [1, HEADS, "S", "S"]),
    # Of Attention.
    "x": (F32, ["B", "S", SIZE]),
    "weights": (F32, [SIZE, 3 * HIDDEN]),
    "added": (F32, [3 * HIDDEN]),
    "past": (F32, [2, "B", HEADS, "P", SIZE]),
    "ends": (I32, ["B"]),
    "starts": (I32, ["B"]),
    "ends_starts": (I32, ["2*B"]),
    # Of GroupQueryAttention.
    "k1": (F32, ["B", "S", SIZE]),
    "v1": (F32, ["B", "S", SIZE]),
    "packed": (F32, ["B", "S", HIDDEN + 2 * SIZE]),
    "past_k1": (F32, ["B", 1, "P", SIZE]),
    "past_v1": (F32, ["B", 1, "P", SIZE]),
    "less_one": (I32, ["B"]),
    "total": (I32, []),
    "sink": (F32, [HEADS]),
}

Node = tuple[str, Sequence[str], str, dict[str, Any]]
# The m of a tokenizer, as each operator takes it.
AS_INT: tuple[Node, ...] = (("Cast", ["m"], "m32", {"to": I32}),)
AS_LENGTHS: tuple[Node, ...] = (*AS_INT, ("ReduceSum", ["m32", "axis"], "sums", {"keepdims": 0}))
LESS_ONE: tuple[Node, ...] = (*AS_LENGTHS, ("Sub", ["sums", "one"], "seqlens", {}))
ENDS_STARTS: tuple[Node, ...] = (("Concat", ["ends", "starts"], "both", {"axis": 0}),)
CONSTANTS = {
    "axis": np.array([1]),
    "one": np.array(1, np.int32),
    "two": np.array([2]),
    "heads": np.array([1, 1, HEADS, 1]),
    "hidden": np.array([0, 0, HIDDEN]),
    "zero": np.array(0, np.float32),
    "inf": np.array(-np.inf, np.float32),
    "low": np.array(np.finfo(np.float32).min),
    "ten": np.array(-10, np.float32),
}


def filled(fill: str) -> tuple[Node, ...]:
    """Return the nodes that make a bias of a boolean mask."""
    return (("Where", ["dense", "zero", fill], "b", {}),)


@dataclass(frozen=True)
class Form:
    """A use of an operator, and the mask that its rules make of it."""

    op: str
    inputs: Sequence[str]
    mask: Mask = field(default_factory=Full)
    attributes: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    assumes: tuple[tuple[str, str], ...] = ()
    outputs: int = 1
    bias: str | None = None
    cross: bool = False
    kv_heads: int = HEADS
    dtype: int = F32

    @property
    def taken(self) -> list[str]:
        """The model's inputs."""
        read = [name for node in self.nodes for name in node[1]] + list(self.inputs)
        return [name for name in dict.fromkeys(read) if name in INPUTS]

    @property
    def model(self) -> onnx.ModelProto:
        helper = onnx.helper
        heads = {"num_heads": HEADS} | ({"kv_num_heads": self.kv_heads} if self.op == "GroupQueryAttention" else {})
        outputs = ["y", "present_k", "present_v"][: self.outputs]
        nodes = [helper.make_node(op, names, [out], **attributes) for op, names, out, attributes in self.nodes]
        nodes.append(
            helper.make_node(
                self.op, self.inputs, outputs, name="site", domain="com.microsoft", **(heads | self.attributes)
            )
        )
        typed = [(name, *INPUTS[name]) for name in self.taken]
        inputs = [
            helper.make_tensor_value_info(name, self.dtype if dtype == F32 else dtype, dims)
            for name, dtype, dims in typed
        ]
        graph = helper.make_graph(
            nodes,
            "g",
            inputs,
            [helper.make_tensor_value_info("y", self.dtype, None)],
            [onnx.numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def mha(*inputs: str, **rest: Any) -> Form:
    return Form("MultiHeadAttention", inputs, **rest)


def attention(*inputs: str, **rest: Any) -> Form:
    return Form("Attention", inputs, **rest)


def gqa(*inputs: str, **rest: Any) -> Form:
    return Form("GroupQueryAttention", inputs, **({"kv_heads": 1} | rest))


QKV = ("q", "k", "v", "")
GQKV = ("q", "k1", "v1", "", "")
XW = ("x", "weights", "added")
CAUSAL: dict[str, Any] = {"unidirectional": 1}
ROWS = Prefix(Row("less_one") + 1)
# Read from what is in the graph; run by ONNX Runtime on the CPU.
FORMS: dict[str, Form] = {
    "MHA": mha("q", "k", "v"),
    "MHA unidirectional": mha("q", "k", "v", mask=Causal(), attributes=CAUSAL),
    "MHA lengths": mha(*QKV, "lengths", mask=Prefix(Row("lengths"))),
    "MHA lengths of a mask": mha(*QKV, "sums", mask=Prefix(Row("sums")), nodes=AS_LENGTHS),
    "MHA key mask": mha(*QKV, "mask", mask=KeyPadding("mask"), assumes=(("mask", "binary"),)),
    "MHA cast key mask": mha(*QKV, "m32", mask=KeyPadding("m"), nodes=AS_INT, assumes=(("m", "binary"),)),
    "MHA key mask unidirectional": mha(
        *QKV, "mask", mask=Causal() & KeyPadding("mask"), attributes=CAUSAL, assumes=(("mask", "binary"),)
    ),
    "MHA query and key mask": mha(*QKV, "mask3", mask=Adjacency("mask3"), assumes=(("mask3", "binary"),)),
    "MHA bias": mha(*QKV, "", "bias", bias="bias"),
    "MHA -inf": mha(*QKV, "", "b", mask=Dense("dense"), nodes=filled("inf")),
    "MHA lowest": mha(*QKV, "", "b", mask=Dense("dense"), nodes=filled("low")),
    "MHA key mask and bias": mha(
        *QKV, "mask", "bias", mask=KeyPadding("mask"), bias="bias", assumes=(("mask", "binary"),)
    ),
    "MHA past": mha(*QKV, "", "", "past_k", "past_v", outputs=3),
    "MHA past unidirectional": mha(*QKV, "", "", "past_k", "past_v", mask=Causal(past), attributes=CAUSAL, outputs=3),
    "MHA past key mask": mha(
        *QKV, "mask_t", "", "past_k", "past_v", mask=KeyPadding("mask_t"), outputs=3, assumes=(("mask_t", "binary"),)
    ),
    "MHA past lengths": mha(*QKV, "lengths", "", "past_k", "past_v", mask=Prefix(Row("lengths")), outputs=3),
    "MHA cross": mha(
        "q", "kl", "vl", "", "mask_l", mask=KeyPadding("mask_l"), cross=True, assumes=(("mask_l", "binary"),)
    ),
    "MHA cross of rank 4": mha("q", "kn", "vn", cross=True),
    "Attention": attention(*XW),
    "Attention unidirectional": attention(*XW, mask=Causal(), attributes=CAUSAL),
    "Attention lengths": attention(*XW, "lengths", mask=Prefix(Row("lengths"))),
    "Attention ends and starts": attention(
        *XW, "both", mask=Prefix(Row("ends")) & ~Prefix(Row("starts")), nodes=ENDS_STARTS
    ),
    "Attention key mask": attention(*XW, "mask", mask=KeyPadding("mask"), assumes=(("mask", "binary"),)),
    "Attention query and key mask": attention(*XW, "mask3", mask=Adjacency("mask3"), assumes=(("mask3", "binary"),)),
    "Attention bias": attention(*XW, "", "", "bias", bias="bias"),
    "Attention -inf": attention(*XW, "", "", "b", mask=Dense("dense"), nodes=filled("inf")),
    "Attention past": attention(*XW, "", "past", outputs=2),
    "Attention past unidirectional": attention(*XW, "", "past", mask=Causal(past), attributes=CAUSAL, outputs=2),
    "Attention past key mask": attention(
        *XW,
        "mask_t",
        "past",
        mask=Causal(past) & KeyPadding("mask_t"),
        attributes=CAUSAL,
        outputs=2,
        assumes=(("mask_t", "binary"),),
    ),
    "GQA": gqa(*GQKV, "less_one", "total", mask=Causal() & ROWS),
    "GQA of as many heads": gqa("q", "k", "v", "", "", "less_one", "total", mask=Causal() & ROWS, kv_heads=HEADS),
    "GQA float16": gqa(*GQKV, "less_one", "total", mask=Causal() & ROWS, dtype=F16),
    "GQA packed": gqa("packed", "", "", "", "", "less_one", "total", mask=Causal() & ROWS),
    "GQA lengths of a mask": gqa(*GQKV, "seqlens", "total", mask=Causal() & Prefix(Row("sums")), nodes=LESS_ONE),
    "GQA bidirectional": gqa(*GQKV, "less_one", "total", mask=ROWS, attributes={"causal": 0}),
    "GQA window": gqa(
        *GQKV, "less_one", "total", mask=Window(2, 0) & ROWS, attributes={"local_window_size": 3}, outputs=3
    ),
    "GQA window of one key": gqa(
        *GQKV, "less_one", "total", mask=Window(0, 0) & ROWS, attributes={"local_window_size": 1}, outputs=3
    ),
    "GQA bias": gqa(*GQKV, "less_one", "total", "", "", "", "bias", mask=Causal() & ROWS, bias="bias"),
    "GQA -inf": gqa(
        *GQKV, "less_one", "total", "", "", "", "b", mask=Causal() & Dense("dense") & ROWS, nodes=filled("inf")
    ),
}
PATTERNS = ("ones", "right", "left", "holes", "one token")


def drawn(pattern: str, length: int = LENGTH) -> np.ndarray:
    """Return a mask [B, K] in which every row has a key."""
    k, rows = np.arange(length), np.array([2, length, 4])[:, None]
    masks = {
        "ones": np.broadcast_to(k >= 0, (BATCH, length)),
        "right": k < rows,
        "left": k >= length - rows,
        "holes": (k * 3 + rows) % 5 % 2 == 0,
        "one token": k == rows - 1,
    }
    assert masks[pattern].any(axis=1).all()
    return masks[pattern]


def feeds_of(form: Form, pattern: str) -> dict[str, np.ndarray]:
    """Return zeros for queries and keys, the identity for values, and masks of a pattern."""
    cached = any(name.startswith("past") for name in form.taken)
    cache, new = (PAST, LENGTH - PAST) if cached else (0, LENGTH)
    queries = 5 if form.cross else new
    sizes = {"B": BATCH, "S": queries, "L": LENGTH, "P": cache, "T": LENGTH, "2*B": 2 * BATCH, "3*B + 2": 3 * BATCH + 2}
    random, keys = np.random.default_rng(3), drawn(pattern)
    counts = keys.sum(axis=1)
    rows = np.eye(LENGTH, SIZE)
    weights = np.zeros((SIZE, 3 * HIDDEN))
    weights[:, 2 * HIDDEN :] = np.tile(np.eye(SIZE), HEADS)
    # A query attends itself, so that no row is empty.
    square = (random.random((BATCH, LENGTH, LENGTH)) < 0.5) & keys[:, None] | np.eye(LENGTH, dtype=bool)
    past_rows = np.zeros((2, BATCH, HEADS, cache, SIZE))
    past_rows[1] = rows[:cache]
    given = {
        "v": np.tile(rows[cache:], HEADS),
        "vl": np.tile(rows, HEADS),
        "vn": rows,
        "v1": rows[cache:],
        "packed": np.concatenate([np.zeros((new, HIDDEN + SIZE)), rows[cache:]], -1),
        "x": rows[cache:],
        "past": past_rows,
        "past_v": rows[:cache],
        "weights": weights,
        "lengths": counts,
        "ends": keys.shape[1] - keys[:, ::-1].argmax(axis=1),
        "starts": keys.argmax(axis=1),
        "less_one": counts - 1,
        "total": LENGTH,
        "mask": keys,
        "mask_l": keys,
        "mask_t": keys,
        "m": keys,
        "mask3": square,
        "dense": square[:HEADS][None],
        "bias": random.standard_normal((1, HEADS, LENGTH, LENGTH)),
        "sink": np.array([0.5, 1.0]),
    }
    feeds = {}
    for name in form.taken:
        dtype, dims = INPUTS[name]
        kind = onnx.helper.tensor_dtype_to_np_dtype(form.dtype if dtype == F32 else dtype)
        shape = [sizes[n] if isinstance(n, str) else n for n in dims]
        feeds[name] = np.broadcast_to(np.asarray(given.get(name, 0)), shape).astype(kind)
    return feeds


def attended(
    form: Form, feeds: dict[str, np.ndarray], names: Sequence[str] = ()
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return which keys [B, H, Q, K] the kernel on the CPU attends, and other values of the same run."""
    model = form.model
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    y, *others = session.run(["y", *names], feeds)
    return weights_of(y) > 0, others


def weights_of(y: np.ndarray) -> np.ndarray:
    """Return the weights [B, H, Q, K] in what attention gives of values that are the identity."""
    return y.reshape(*y.shape[:2], HEADS, SIZE).transpose(0, 2, 1, 3)[..., :LENGTH]


def site_of(form: Form) -> SiteReport:
    report = inspect(form.model)
    assert report.unlifted == ()
    (site,) = report.sites
    return site


def reason_of(form: Form) -> str:
    report = inspect(form.model)
    assert report.sites == ()
    (unlifted,) = report.unlifted
    assert unlifted.attention
    return unlifted.reason


@pytest.mark.parametrize("name", FORMS)
def test_is_read(name: str) -> None:
    form = FORMS[name]
    site = site_of(form)
    assert (site.mask, site.mask.witness(form.mask)) == (form.mask, None)
    assert site.form == f"com.microsoft.{form.op}"
    assert (site.q_heads, site.kv_heads, site.head_size) == (HEADS, form.kv_heads, SIZE)
    assert (site.scale, site.softcap, site.sink, site.bias) == (SIZE**-0.5, 0.0, None, form.bias)
    assert (site.assumes, site.empty_rows) == (form.assumes, "unknown")
    assert site.verified, site.note


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", FORMS)
def test_attends_as_the_kernel(name: str, pattern: str) -> None:
    form = FORMS[name]
    feeds, site = feeds_of(form, pattern), site_of(form)
    computed = [tensor for tensor in site.mask.tensors if tensor not in feeds]
    kernel, others = attended(form, feeds, computed)
    tensors = {tensor: feeds[tensor] for tensor in site.mask.tensors if tensor in feeds}
    tensors |= dict(zip(computed, others, strict=True))
    cached = any(taken.startswith("past") for taken in form.taken)
    lifted = site.mask.dense(kernel.shape[2], LENGTH, PAST if cached else 0, **tensors)
    lifted = np.broadcast_to(lifted, kernel.shape)
    # What kernels give for a row without keys is another question, which `empty_rows` answers.
    rows = lifted.any(axis=-1)
    assert rows.any()
    np.testing.assert_array_equal(kernel[rows], lifted[rows])


CACHED = ("q", "k1", "v1", "past_k1", "past_v1", "less_one", "total")
OF_ROWS = Row("less_one") + 1 - Q
# Queries of this run, and each row's keys, its new ones included.
STEPS = {"one": (1, (7, 5, 3)), "one of all": (1, (7, 7, 7)), "chunk": (4, (7,))}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("attributes", "mask"),
    [
        ({}, Causal(OF_ROWS) & ROWS),
        ({"causal": 0}, ROWS),
        ({"local_window_size": 3}, Window(2, 0, OF_ROWS) & ROWS),
    ],
    ids=str,
)
def test_grouped_attention_counts_its_cache_by_rows(attributes: dict[str, Any], mask: Mask, step: str) -> None:
    form = gqa(*CACHED, attributes=attributes, outputs=3)
    site = site_of(form)
    assert (site.mask, site.mask.witness(mask), site.kv_heads) == (mask, None, 1)
    assert not site.verified
    assert site.note is not None
    assert "how many keys" in site.note
    queries, lengths = STEPS[step]
    batch, rows = len(lengths), np.eye(LENGTH, SIZE, dtype=np.float32)
    new = np.stack([rows[length - queries : length] for length in lengths])
    cache = np.broadcast_to(rows[: LENGTH - queries], (batch, 1, LENGTH - queries, SIZE)).copy()
    feeds = {
        "q": np.zeros((batch, queries, HIDDEN), np.float32),
        "k1": np.zeros_like(new),
        "v1": new,
        "past_k1": np.zeros_like(cache),
        "past_v1": cache,
        "less_one": np.array(lengths, np.int32) - 1,
        "total": np.array(LENGTH, np.int32),
    }
    kernel, _ = attended(form, feeds)
    lifted = site.mask.dense(queries, LENGTH, 0, less_one=feeds["less_one"])
    np.testing.assert_array_equal(kernel, np.broadcast_to(lifted, kernel.shape))


SCORES: dict[str, tuple[Form, tuple[float, float, str | None]]] = {
    "MHA": (mha("q", "k", "v"), (SIZE**-0.5, 0.0, None)),
    "MHA scale": (mha("q", "k", "v", attributes={"scale": 0.7} | CAUSAL, mask=Causal()), (0.7, 0.0, None)),
    "Attention": (attention(*XW), (SIZE**-0.5, 0.0, None)),
    "Attention scale": (attention(*XW, attributes={"scale": 0.7}), (0.7, 0.0, None)),
    "GQA": (gqa(*GQKV, "less_one", "total"), (SIZE**-0.5, 0.0, None)),
    "GQA scale": (gqa(*GQKV, "less_one", "total", attributes={"scale": 0.7}), (0.7, 0.0, None)),
    "GQA softcap": (gqa(*GQKV, "less_one", "total", attributes={"softcap": 1.5}), (SIZE**-0.5, 1.5, None)),
    "GQA sink": (
        gqa(*GQKV, "less_one", "total", "", "", "", "", "sink", attributes={"softcap": 1.5, "scale": 0.7}),
        (0.7, 1.5, "sink"),
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_scaled_capped_and_sunk_as_the_site_says(name: str) -> None:
    form, expected = SCORES[name]
    site = site_of(form)
    assert site.scale == pytest.approx(expected[0])
    assert (site.softcap, site.sink) == expected[1:]
    assert site.verified, site.note
    feeds, random = feeds_of(form, "ones"), np.random.default_rng(5)
    drawn_here = [name for name in ("q", "k", "k1", "added") if name in feeds]
    for given in drawn_here:
        feeds[given] = random.standard_normal(feeds[given].shape).astype(np.float32) * 2
    if form.op == "Attention":
        feeds["weights"][:, : 2 * HIDDEN] = random.standard_normal((SIZE, 2 * HIDDEN)) * 2
        feeds["added"][2 * HIDDEN :] = 0
        projected = feeds["x"] @ feeds["weights"] + feeds["added"]
        queries, keys = projected[..., :HIDDEN], projected[..., HIDDEN : 2 * HIDDEN]
    else:
        queries, keys = feeds["q"], feeds["k1" if form.op == "GroupQueryAttention" else "k"]
    by_head = [a.reshape(BATCH, LENGTH, -1, SIZE).transpose(0, 2, 1, 3) for a in (queries, keys)]
    scores = by_head[0] @ by_head[1].swapaxes(-1, -2) * site.scale
    if site.softcap:
        scores = site.softcap * np.tanh(scores / site.softcap)
    tensors = {name: feeds[name] for name in site.mask.tensors}
    scores = np.where(site.mask.dense(LENGTH, LENGTH, 0, **tensors), scores, -np.inf)
    weights = np.exp(scores)
    total = weights.sum(axis=-1, keepdims=True)
    if site.sink is not None:
        total = total + np.exp(feeds[site.sink])[:, None, None]
    session = ort.InferenceSession(form.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(["y"], feeds)
    found = y.reshape(BATCH, LENGTH, HEADS, SIZE).transpose(0, 2, 1, 3)[..., :LENGTH]
    np.testing.assert_allclose(found, weights / total, atol=1e-5)


# One head of keys, repeated for two.
REPEATED: tuple[Node, ...] = (
    ("Unsqueeze", ["k1", "two"], "apart", {}),
    ("Expand", ["apart", "heads"], "expanded", {}),
    ("Reshape", ["expanded", "hidden"], "repeated", {}),
)
TURNED: tuple[Node, ...] = (*REPEATED[:2], ("Transpose", ["expanded"], "turned", {"perm": [0, 2, 1, 3]}))


@pytest.mark.parametrize(
    "form",
    [
        mha("q", "repeated", "v", nodes=REPEATED),
        mha("q", "repeated", "v", "", "", "", "past_k", "past_v", nodes=REPEATED, outputs=3),
        mha("q", "turned", "vn", nodes=TURNED),
        gqa("q", "repeated", "v", "", "", "less_one", "total", nodes=REPEATED, kv_heads=HEADS),
    ],
    ids=["MHA", "MHA past", "MHA of rank 4", "GQA"],
)
def test_heads_that_were_repeated_before_the_operator_are_counted_once(form: Form) -> None:
    site = site_of(form)
    assert (site.q_heads, site.kv_heads, site.head_size) == (HEADS, 1, SIZE)


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.cross])
def test_keys_of_another_length_are_cross_attention(name: str) -> None:
    assert site_of(FORMS[name]).cross


@pytest.mark.parametrize("source", ["x", "y"])
def test_keys_of_another_sequence_are_cross_attention(source: str) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
        g (float[2,7,{SIZE}] x, float[2,7,{SIZE}] y) => (float[2,7,{HIDDEN}] z)
        <float[{SIZE},{HIDDEN}] a = {{{", ".join(["0.5"] * SIZE * HIDDEN)}}}> {{
          q = MatMul(x, a)
          k = MatMul({source}, a)
          v = MatMul({source}, a)
          z = com.microsoft.MultiHeadAttention <num_heads = {HEADS}> (q, k, v)
        }}""")
    (site,) = inspect(model).sites
    assert site.cross is (source == "y")


def test_attention_of_weights_that_are_an_input_is_no_cross_attention() -> None:
    assert not site_of(attention(*XW)).cross


NOT_READ: dict[str, tuple[Form, str]] = {
    "cumulative lengths": (mha(*QKV, "cumulative"), "holds cumulative lengths"),
    "causal cross": (mha("q", "kl", "vl", attributes=CAUSAL), "which CPU and CUDA align differently"),
    "buffer": (mha(*QKV, "", "", "past_k", "past_v", "past_length", outputs=3), "its cache is a buffer"),
    "fill": (mha(*QKV, "mask", attributes={"mask_filter_value": -1.0}), "a fill of -1 is too small to mask"),
    "bias too small": (mha(*QKV, "", "b", nodes=filled("ten")), "a fill of -10 is too small to mask"),
    "mask without cache": (mha(*QKV, "mask", "", "past_k", "past_v", outputs=3), "nothing of the keys in the cache"),
    "float mask": (mha(*QKV, "bias"), "is no integer mask"),
    "ends and starts of MHA": (mha(*QKV, "both", nodes=ENDS_STARTS), "is not as long as the batch"),
    "ends and starts of an input": (attention(*XW, "ends_starts"), "'ends_starts'"),
    "mask of rank 4": (attention(*XW, "mask4"), "has rank 4"),
    "Attention buffer": (
        attention(*XW, "", "past", attributes={"past_present_share_buffer": 1}, outputs=2),
        "its cache is a buffer",
    ),
    "windowed cache": (
        gqa(*CACHED, attributes={"sliding_window_cache": 1, "local_window_size": 3}, outputs=3),
        "its cache drops the oldest keys",
    ),
    "window of no key": (
        gqa(*GQKV, "less_one", "total", attributes={"local_window_size": 0}),
        "its window keeps no key",
    ),
    "no heads": (mha("q", "k", "v", attributes={"num_heads": 0}), "its num_heads is 0"),
    "no key heads": (gqa(*GQKV, "less_one", "total", kv_heads=0), "its kv_num_heads is 0"),
    "uneven heads": (gqa(*GQKV, "less_one", "total", kv_heads=3), "2 heads don't share 3 key heads evenly"),
    "heads that divide no hidden size": (attention(*XW, attributes={"num_heads": 3}), "not divided by 3 heads"),
    "smooth softmax": (gqa(*GQKV, "less_one", "total", attributes={"smooth_softmax": 1}), "is a sink of 0"),
    "packed MHA": (Form("PackedMultiHeadAttention", ("q", "k", "v", "", "mask", "lengths")), "cumulative lengths"),
    "packed": (Form("PackedAttention", ("x", "weights", "added", "mask", "lengths")), "cumulative lengths"),
}


@pytest.mark.parametrize("name", NOT_READ)
def test_is_not_read_and_says_why(name: str) -> None:
    form, reason = NOT_READ[name]
    assert reason in reason_of(form)


# Where kernels differ from each other, or from their documentation.


def test_the_cpu_lets_the_last_query_see_every_key_of_causal_cross_attention() -> None:
    form = mha("q", "kl", "vl", attributes=CAUSAL, cross=True)
    kernel, _ = attended(form, feeds_of(form, "ones"))
    q, k = np.arange(5)[:, None], np.arange(LENGTH)
    # From the top left, but for the last query; CUDA aligns the last query with the last key.
    np.testing.assert_array_equal(kernel, np.broadcast_to((k <= q) | (q == 4), kernel.shape))
    assert "align differently" in reason_of(form)


def test_the_cpu_masks_with_a_small_fill_too_little_but_future_keys_wholly() -> None:
    form = mha(*QKV, "mask", attributes={"mask_filter_value": -1.0})
    kernel, _ = attended(form, feeds_of(form, "right"))
    assert kernel.all()
    future = mha("q", "k", "v", mask=Causal(), attributes=CAUSAL | {"mask_filter_value": -1.0})
    site = site_of(future)
    assert (site.mask, site.verified) == (Causal(), True)


# The kernel reads memory there that nobody wrote: in a process of its own, whose new memory is zeros.
ON_ZEROS = """
import sys
import numpy as np
import onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
np.save(sys.argv[3], session.run(["y"], dict(np.load(sys.argv[2])))[0])
"""


def test_the_cpu_leaves_out_a_cache_that_the_operator_does_not_return(tmp_path: Path) -> None:
    form = mha(*QKV, "", "", "past_k", "past_v")
    model, given, result = (tmp_path / name for name in ("model.onnx", "feeds.npz", "y.npy"))
    onnx.save(form.model, model)
    np.savez(given, **feeds_of(form, "ones"))
    # glibc fills what it allocates with the complement of this byte.
    zeros = {**os.environ, "MALLOC_PERTURB_": "255"}
    subprocess.run([sys.executable, "-c", ON_ZEROS, model, given, result], env=zeros, check=True, timeout=60)
    assert not (weights_of(np.load(result)) > 0)[..., :PAST].any()
    site = site_of(form)
    assert (site.mask, site.verified) == (Full(), False)
    assert site.note is not None
    assert "leaves out the cache" in site.note


def test_a_mask_of_ones_and_zeros_is_taken_for_one_because_the_cpu_masks_other_numbers() -> None:
    form = FORMS["MHA key mask"]
    feeds = feeds_of(form, "ones")
    feeds["mask"] = np.tile(np.array([1, 2, -1, 0, 1, 1, 1], np.int32), (BATCH, 1))
    kernel, _ = attended(form, feeds)
    np.testing.assert_array_equal(kernel[0, 0, 0], [True, True, False, False, True, True, True])
    assert site_of(form).assumes == (("mask", "binary"),)


@pytest.mark.parametrize("causal", [0, 1])
def test_lengths_of_grouped_attention_count_from_the_first_key_whichever_side_is_padded(causal: int) -> None:
    form = gqa(*GQKV, "seqlens", "total", nodes=LESS_ONE, attributes={"causal": causal})
    site = site_of(form)
    assert site.mask == (Causal() & Prefix(Row("sums")) if causal else Prefix(Row("sums")))
    left, right = (attended(form, feeds_of(form, side))[0] for side in ("left", "right"))
    np.testing.assert_array_equal(left, right)


def test_a_window_is_not_kept_by_the_cpu_for_queries_past_their_rows_end_unless_keys_are_returned() -> None:
    window = {"local_window_size": 3}
    inside, ends = (
        attended(form, feeds_of(form, "right"))[0]
        for form in (gqa(*GQKV, "less_one", "total", attributes=window, outputs=n) for n in (3, 1))
    )
    lengths = drawn("right").sum(axis=1)
    real = np.broadcast_to((np.arange(LENGTH) < lengths[:, None])[:, None, :, None], inside.shape)
    np.testing.assert_array_equal(inside[real], ends[real])
    assert (inside != ends).any()
    # So these are no part of what is checked.
    site = site_of(gqa(*GQKV, "less_one", "total", attributes=window))
    assert (site.mask, site.verified) == (Window(2, 0) & ROWS, True)


def test_grouped_attention_takes_no_keys_of_another_length_without_a_cache() -> None:
    form = gqa(*GQKV, "less_one", "total", attributes={"causal": 0})
    feeds = feeds_of(form, "ones")
    feeds["q"] = feeds["q"][:, :5]
    with pytest.raises(Exception, match="must have the same sequence length"):
        attended(form, feeds)


@pytest.mark.parametrize("inputs", [("qkv",), ("q", "kv")], ids=str)
def test_packed_operands_are_read_although_the_cpu_has_no_kernel_for_them(inputs: tuple[str, ...]) -> None:
    form = mha(*inputs, attributes={"scale": 0.5})
    site = site_of(form)
    assert (site.mask, site.q_heads, site.kv_heads, site.head_size, site.scale) == (Full(), HEADS, HEADS, SIZE, 0.5)
    assert site.note == "not run: ONNX Runtime has no packed queries, keys and values on the CPU"
    with pytest.raises(Exception, match="not implemented for CPU"):
        attended(form, feeds_of(form, "ones"))


# The check by running.


@pytest.mark.parametrize("name", ["MHA unidirectional", "Attention past unidirectional", "GQA", "GQA float16"])
def test_a_mask_that_is_read_one_off_is_found_by_running(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    causal = operators._causal
    monkeypatch.setattr(operators, "_causal", lambda axes, offset: causal(axes, t.add(offset, t.ONE)))
    assert reason_of(FORMS[name]).startswith("the mask read from it is wrong: ")


@pytest.mark.parametrize("name", ["MHA lengths", "Attention ends and starts", "GQA bidirectional", "GQA packed"])
def test_lengths_that_are_read_one_off_are_found_by_running(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = operators._before
    monkeypatch.setattr(operators, "_before", lambda axes, length: before(axes, t.sub(length, t.ONE)))
    assert reason_of(FORMS[name]).startswith("the mask read from it is wrong: ")


def test_without_onnx_runtime_it_is_read_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    site = site_of(FORMS["MHA unidirectional"])
    assert (site.mask, site.verified) == (Causal(), False)
    assert site.note == "not run: ONNX Runtime is not installed, whose operator it is"


@pytest.mark.parametrize(
    ("name", "fixed", "note"),
    [
        # GroupQueryAttention divides by the size of its batch, and takes the process with it.
        ("GQA window", {"B": 0}, "not run: its lengths are [0, 2, 5, 5]"),
        ("MHA unidirectional", {"B": 1, "S": 40_000}, "not run: it takes a tensor of 3200000000 elements"),
    ],
)
def test_what_ends_the_process_or_fills_its_memory_is_not_run(name: str, fixed: dict[str, int], note: str) -> None:
    model = FORMS[name].model
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in fixed:
                dim.dim_value = fixed[dim.dim_param]
    (site,) = inspect(model).sites
    assert site.mask == FORMS[name].mask
    assert (site.verified, site.note) == (False, note)
