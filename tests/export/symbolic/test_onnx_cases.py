"""ONNX's own decompositions of Attention are read back as what the operator's node said, and so is the node itself."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from maskport.export import inspect
from maskport.export.report import SiteReport
from maskport.models import Dense, Full, Mask, Prefix, Q, Row, Window, past
from onnx.reference import ReferenceEvaluator

# Cases that are not read back, with the reason.
NOT_LIFTED: dict[str, str] = {}


@dataclass(frozen=True)
class Case:
    """A node test of ONNX: the operator, its decomposition, and the inputs of both."""

    operator: onnx.ModelProto
    expanded: onnx.ModelProto
    inputs: dict[str, np.ndarray]

    @property
    def node(self) -> onnx.NodeProto:
        return next(node for node in self.operator.graph.node if node.op_type == "Attention")

    @property
    def attributes(self) -> dict[str, Any]:
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.node.attribute}

    def given(self, place: int) -> np.ndarray | None:
        """Return the input of the operator at a place."""
        names = self.node.input
        return self.inputs[names[place]] if place < len(names) and names[place] else None


@functools.cache
def cases() -> dict[str, Case]:
    """Return the cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = {case.name: case for case in collect_testcases(None) if case.name.startswith("test_attention")}
    return {
        name: Case(case.model, found[f"{name}_expanded"].model, _inputs(case))
        for name, case in found.items()
        if f"{name}_expanded" in found
    }


def _inputs(case: Any) -> dict[str, np.ndarray]:
    arrays, _outputs = case.data_sets[0]
    return {value.name: np.asarray(a) for value, a in zip(case.model.graph.input, arrays, strict=True)}


@functools.cache
def runs(name: str) -> bool:
    """Return whether onnx's reference evaluator runs a decomposition."""
    case = cases()[name]
    try:
        with np.errstate(all="ignore"):
            ReferenceEvaluator(case.expanded).run(None, case.inputs)
    except Exception:
        return False
    return True


@dataclass(frozen=True)
class Expected:
    """What a node's attributes and inputs say, by the specification of ai.onnx Attention."""

    q_heads: int
    kv_heads: int
    head_size: int
    scale: float
    softcap: float
    mask: Mask
    bias: str | None
    attend: np.ndarray
    past: int


def expected(case: Case) -> Expected:
    """Read the operator by its specification."""
    attributes = case.attributes
    query, key = case.inputs[case.node.input[0]], case.inputs[case.node.input[1]]
    if query.ndim == 4:
        q_heads, kv_heads, q_len, k_len = query.shape[1], key.shape[1], query.shape[2], key.shape[2]
        size = query.shape[3]
    else:
        q_heads, kv_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        q_len, k_len, size = query.shape[1], key.shape[1], query.shape[2] // q_heads
    past_key, nonpad, given = case.given(4), case.given(6), case.given(3)
    past_len = 0 if past_key is None else past_key.shape[2]
    k_len += past_len
    lengths = None if nonpad is None else nonpad[:, None, None, None]
    q = np.arange(q_len)[:, None] + (past_len if lengths is None else lengths - q_len)
    k = np.arange(k_len)
    mask, attend = Full(), np.ones((query.shape[0], q_heads, q_len, k_len), bool)
    if lengths is not None:
        mask, attend = mask & Prefix(case.node.input[6]), attend & (k < lengths)
    offset = past if lengths is None else Row(case.node.input[6]) - Q
    if attributes.get("is_causal", 0):
        mask, attend = mask & Window(-1, 0, offset), attend & (k <= q)
    left, right = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    mask = mask & Window(left, right, offset)
    attend = attend & ((k >= q - left) | (left < 0)) & ((k <= q + right) | (right < 0))
    bias = None
    if given is not None:
        if given.shape[-1] < k_len and given.shape[-1] > 1:
            mask, attend = mask & Prefix(given.shape[-1]), attend & (k < given.shape[-1])
            fill = False if given.dtype == bool else 0
            widths = [(0, 0)] * (given.ndim - 1) + [(0, k_len - given.shape[-1])]
            given = np.pad(given, widths, constant_values=fill)
        if given.dtype == bool:
            mask, attend = mask & Dense(case.node.input[3]), attend & given
        else:
            bias = case.node.input[3]
    scale = attributes.get("scale", 1 / math.sqrt(size))
    softcap = attributes.get("softcap", 0.0)
    return Expected(q_heads, kv_heads, size, scale, softcap, mask, bias, attend, past_len)


def differences(case: Case, site: SiteReport) -> dict[str, tuple[object, object]]:
    """Return what a lifted site says otherwise than the operator: (expected, lifted) by field."""
    want = expected(case)
    pairs = {name: (getattr(want, name), getattr(site, name)) for name in ("q_heads", "kv_heads", "head_size", "bias")}
    # A scale is split over queries and keys, as its root in their type.
    dtype = case.inputs[case.node.input[0]].dtype
    epsilon = float(ml_dtypes.finfo(dtype).eps)
    found = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    for name in ("scale", "softcap"):
        one, other = getattr(want, name), getattr(site, name)
        if not math.isclose(one, other, rel_tol=2 * epsilon):
            found[name] = (one, other)
    tensors = {name: case.inputs[name] for name in site.mask.tensors}
    *_, q_len, k_len = want.attend.shape
    dense = np.broadcast_to(site.mask.dense(q_len, k_len, want.past, **tensors), want.attend.shape)
    if not (dense == want.attend).all():
        found["dense"] = (want.attend, dense)
    if not _equal(want.mask, site.mask, q_len, k_len, want.past):
        found["mask"] = (want.mask, site.mask)
    return found


def _equal(one: Mask, other: Mask, q_len: int, k_len: int, past_len: int) -> bool:
    """Return whether masks are equal at the lengths of a case, which are numbers in its graph."""
    witness = one.witness(other)
    if witness is None:
        return True
    # What differs at other lengths only: whichever values the tensors have, at these lengths it is the same.
    random = np.random.default_rng(0)
    for _ in range(50):
        tensors = {}
        for name, spec in (one.tensors | other.tensors).items():
            length = {"b": 2, "h": 2, "q": q_len, "k": k_len, "p": k_len}
            shape = [length[axis] for axis in spec.dims]
            tensors[name] = random.integers(0, k_len + 2 if spec.dims == "b" else 2, shape)
            if spec.dims == "bhqk":
                tensors[name] = tensors[name].astype(bool)
        if not (
            np.asarray(one.dense(q_len, k_len, past_len, **tensors))
            == np.asarray(other.dense(q_len, k_len, past_len, **tensors))
        ).all():
            return False
    return True


@pytest.mark.parametrize("name", sorted(cases()))
@pytest.mark.parametrize("form", ["expanded", "operator"])
def test_read_back(name: str, form: str) -> None:
    case = cases()[name]
    if form == "expanded" and not runs(name):
        assert name not in NOT_LIFTED
        pytest.skip("onnx's reference evaluator doesn't run it")
    report = inspect(getattr(case, form))
    if name in NOT_LIFTED:
        assert [unlifted.reason for unlifted in report.unlifted] == [NOT_LIFTED[name]]
        return
    assert report.unlifted == ()
    (site,) = report.sites
    assert site.form == ("decomposed" if form == "expanded" else "ai.onnx.Attention")
    assert differences(case, site) == {}
    assert site.assumes == ()
    assert site.verified, site.note


def test_score(capsys: pytest.CaptureFixture[str]) -> None:
    """Print how many are read back exactly, of those that onnx's own reference runs."""
    can_run = [name for name in cases() if runs(name)]
    right = 0
    for name in can_run:
        sites = inspect(cases()[name].expanded).sites
        right += len(sites) == 1 and differences(cases()[name], sites[0]) == {}
    with capsys.disabled():
        print(f"\nONNX's decomposed attention: {right} of {len(can_run)} read back (of {len(cases())} cases)")
    assert right == len(can_run) - len(NOT_LIFTED)
