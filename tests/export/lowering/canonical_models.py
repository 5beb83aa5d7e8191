"""Models of canonical attention nodes, what they must give, and what gives it: ONNX Runtime or the twins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from maskport.export.lowering.canonical import ATTENTION, DOMAIN
from maskport.export.lowering.costs import COSTS, Costs, provider_of
from maskport.export.lowering.lower import Lowered, lower
from maskport.export.lowering.targets import Target
from maskport.export.twins import evaluate
from maskport.models import Mask

PATTERNS = ("ones", "right", "left", "holes", "one", "none")
TYPES = {"float32": ir.DataType.FLOAT, "float16": ir.DataType.FLOAT16}
# Largest difference to float64 that a kernel's arithmetic in a type explains, for values of a size about 1.
TOLERANCES = {"float32": 3e-6, "float16": 6e-3}


@dataclass(frozen=True)
class Case:
    """One attention; lengths are named axes unless `static` holds."""

    mask: str = "full"
    q_heads: int = 4
    kv_heads: int = 4
    head_size: int = 8
    v_head_size: int = 8
    scale: float = 0.3
    softcap: float = 0.0
    sink: bool = False
    bias: tuple[int | str, ...] | None = None
    past: bool = False
    cross: bool = False
    dtype: str = "float32"
    opset: int = 24
    sites: int = 1
    static: Mapping[str, int] = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, Any]:
        return Mask.parse(self.mask).tensors

    def dims(self, *names: int | str) -> list[int | str]:
        return [self.static.get(str(name), name) for name in names]

    def model(self) -> ir.Model:
        """Return the model: sites one after the other, each of the same inputs, with outputs of their own."""
        kind, opset = TYPES[self.dtype], self.opset
        keys = "keys" if self.cross else "seq"
        total = "total" if self.past else keys
        axes = {"b": "batch", "h": self.q_heads, "q": "seq", "k": total}
        inputs = {
            "query": ir.val("query", kind, self.dims("batch", "seq", self.q_heads * self.head_size)),
            "key": ir.val("key", kind, self.dims("batch", keys, self.kv_heads * self.head_size)),
            "value": ir.val("value", kind, self.dims("batch", keys, self.kv_heads * self.v_head_size)),
        }
        if self.bias is not None:
            inputs["bias"] = ir.val("bias", kind, self.dims(*self.bias))
        if self.sink:
            inputs["sink"] = ir.val("sink", kind, [self.q_heads])
        if self.past:
            inputs["past_key"] = ir.val("past_key", kind, self.dims("batch", self.kv_heads, "past", self.head_size))
            inputs["past_value"] = ir.val(
                "past_value", kind, self.dims("batch", self.kv_heads, "past", self.v_head_size)
            )
        for name, spec in self.tensors.items():
            element = ir.DataType.BOOL if spec.dims == "bhqk" else ir.DataType.INT64
            inputs[name] = ir.val(name, element, self.dims(*(axes[letter] for letter in spec.dims)))
        attributes = {
            "form": "decomposed",
            "mask": self.mask,
            "mask_tensors": ir.AttrStrings("mask_tensors", list(self.tensors)),
            "q_heads": self.q_heads,
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
            "v_head_size": self.v_head_size,
            "scale": self.scale,
            "softcap": self.softcap,
            "empty_rows": "mean",
            "cross": int(self.cross),
        }
        fixed = ("query", "key", "value", "bias", "sink", "past_key", "past_value")
        operands = [inputs.get(name) for name in (*fixed, *self.tensors)]
        nodes, outputs = [], []
        for number in range(self.sites):
            node = ir.node(
                ATTENTION,
                operands,
                {**attributes, "name": f"layers.{number}"},
                domain=DOMAIN,
                num_outputs=3 if self.past else 1,
            )
            shapes = [("batch", "seq", self.q_heads * self.v_head_size)]
            shapes += [("batch", self.kv_heads, total, size) for size in (self.head_size, self.v_head_size)]
            for name, output, shape in zip(("y", "present_key", "present_value"), node.outputs, shapes, strict=False):
                output.name, output.dtype = f"{name}{number}", kind
                output.shape = ir.Shape(self.dims(*shape))
            nodes.append(node)
            outputs += node.outputs
        graph = ir.Graph(list(inputs.values()), outputs, nodes=nodes, opset_imports={"": opset, DOMAIN: 1}, name="g")
        return ir.Model(graph, ir_version=10)

    def feeds(
        self, batch: int, queries: int, keys: int | None = None, past: int = 0, pattern: str = "ones", seed: int = 0
    ) -> dict[str, np.ndarray]:
        """Draw inputs; two-dimensional tensors of the mask follow a pattern, lengths are drawn, row 0 has the least."""
        random = np.random.default_rng(seed)
        keys = queries if keys is None else keys
        sizes = {"batch": batch, "seq": queries, "keys": keys, "past": past, "total": past + keys}

        def normal(*shape: int | str) -> np.ndarray:
            return random.standard_normal([sizes.get(str(n), n) for n in shape]).astype(self.dtype)

        feeds = {
            str(value.name): normal(*(n if isinstance(n, int) else str(n.value) for n in value.shape or ()))
            for value in self.model().graph.inputs
            if value.dtype == TYPES[self.dtype]
        }
        letters = {"b": batch, "h": self.q_heads, "q": queries, "k": past + keys}
        for name, spec in self.tensors.items():
            shape = [letters[letter] for letter in spec.dims]
            if spec.dims == "bk":
                feeds[name] = padding(pattern, *shape, random) * random.integers(1, 3, (batch, 1))
            elif spec.dims == "b":
                feeds[name] = random.integers(0 if pattern == "none" else 1, past + keys + 1, shape)
            elif spec.dims == "bhqk":
                feeds[name] = random.random(shape) < 0.6
            else:
                feeds[name] = random.integers(0, 3, shape)
        return feeds

    def expected(self, feeds: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the result in float64, and which rows [B, Q] have a key in every head."""

        def heads(name: str, count: int) -> np.ndarray:
            array = feeds[name].astype(np.float64)
            return array.reshape(*array.shape[:2], count, -1).transpose(0, 2, 1, 3)

        query, key, value = heads("query", self.q_heads), heads("key", self.kv_heads), heads("value", self.kv_heads)
        past = 0
        if self.past:
            past = feeds["past_key"].shape[2]
            key = np.concatenate([feeds["past_key"], key], 2)
            value = np.concatenate([feeds["past_value"], value], 2)
        key, value = (np.repeat(array, self.q_heads // self.kv_heads, 1) for array in (key, value))
        scores = query @ key.swapaxes(-1, -2) * self.scale
        if self.softcap:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if self.bias is not None:
            scores = scores + feeds["bias"]
        tensors = {name: feeds[name] for name in self.tensors}
        dense = Mask.parse(self.mask).dense(query.shape[2], key.shape[2], past, **tensors)
        attend = np.broadcast_to(np.asarray(dense), scores.shape)
        peak = np.where(attend, scores, -np.inf).max(-1, keepdims=True)
        peak = np.where(np.isfinite(peak), peak, 0)
        weights = np.where(attend, np.exp(np.where(attend, scores, peak) - peak), 0)
        total = weights.sum(-1, keepdims=True)
        if self.sink:
            total = total + np.exp(feeds["sink"].astype(np.float64).reshape(1, -1, 1, 1) - peak)
        weights = weights / np.where(total == 0, 1, total)
        result = (weights @ value).transpose(0, 2, 1, 3)
        return result.reshape(*result.shape[:2], -1), attend.any(-1).all(1)


def padding(pattern: str, batch: int, keys: int, random: np.random.Generator) -> np.ndarray:
    """Return which tokens are real, int64 [batch, keys]; every pattern but "none" leaves each row one."""
    real = random.integers(1, keys + 1, (batch, 1))
    column = np.arange(keys)
    if pattern == "holes":
        mask = random.random((batch, keys)) < 0.5
        mask[np.arange(batch), random.integers(0, keys, batch)] = True
        return mask.astype(np.int64)
    rows = {
        "ones": column >= 0,
        "right": column < real,
        "left": column >= keys - real,
        "one": column == real - 1,
        "none": column < 0,
    }
    return np.broadcast_to(rows[pattern], (batch, keys)).astype(np.int64)


def lowered(
    case: Case,
    target: str = "cpu",
    *,
    kernel: str | None = None,
    padding_rows: str = "keep",
    assume: Collection[str] = (),
) -> tuple[ir.Model, list[Lowered]]:
    """Return a case's model, lowered, and what its sites became; a kernel that is named costs least."""
    model, parsed = case.model(), Target.parse(target)
    costs = COSTS if kernel is None else Costs(((1, 1),), {provider_of(parsed): {kernel: [0.0]}})
    return model, lower(model, parsed, padding_rows=padding_rows, assume=assume, costs=costs)


def run(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a model by ONNX Runtime on the CPU."""
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(None, dict(feeds))), strict=True))


def run_twins(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a model by the twins."""
    return evaluate(ir.to_proto(model), feeds)


def operators(model: ir.Model) -> list[str]:
    """Return the operators of a graph."""
    return [node.op_type for node in model.graph]


def attention_node(model: ir.Model, operator: str) -> ir.Node:
    """Return the one node of an operator."""
    (node,) = (node for node in model.graph if node.op_type == operator)
    return node


def check(
    case: Case, model: ir.Model, feeds: Mapping[str, np.ndarray], rows: np.ndarray | None = None, by: Any = run
) -> None:
    """Compare a lowered model with what its case must give: all rows with a key, or some of them; all are finite."""
    results = by(model, feeds)
    expected, has_key = case.expected(feeds)
    counts = has_key if rows is None else has_key & rows
    for number in range(case.sites):
        result = results[f"y{number}"]
        assert result.shape == expected.shape
        assert np.isfinite(result).all()
        if counts.any():
            error = np.abs(result - expected)[counts].max()
            assert error <= TOLERANCES[case.dtype], error
