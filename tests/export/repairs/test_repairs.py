"""The table of repairs: what is offered, what is applied, and what is left alone."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from maskport.export import repairs
from maskport.export.errors import OptimizeError
from maskport.export.repairs import REPAIRS, apply, offered, repair

# A mask that is multiplied, a fill that is infinite, and rows that are NaN.
FAULTY = """<ir_version: 10, opset_import: ["": 20, "local": 1]>
g (float[B,2,S,4] q, int64[B,S] m, bool[B,1,1,S] keep) => (float[B,2,S,4] y, float[B,2,S,4] z, float[B,2,S,4] u) {
    one = Constant<value_float=1.0>()
    zero = Constant<value_float=0.0>()
    inf = Constant<value_float=-inf>()
    axes = Constant<value_ints=[1,2]>()
    t = Transpose<perm=[0,1,3,2]>(q)
    s = MatMul(q, t)
    c = Cast<to=1>(m)
    key = Unsqueeze(c, axes)
    scaled = local.times(s, key)
    a = Softmax<axis=-1>(scaled)
    y = MatMul(a, q)
    off = Sub(one, key)
    low = Mul(off, inf)
    filled = Add(s, low)
    b = Softmax<axis=-1>(filled)
    z = MatMul(b, q)
    hidden = Where(keep, s, inf)
    d = Softmax<axis=-1>(hidden)
    u = MatMul(d, q)
}
<domain: "local", opset_import: ["": 20]> times (a, b) => (c) { c = Mul(a, b) }"""


def model() -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(FAULTY))


def test_what_would_be_done_is_offered_and_nothing_is_done() -> None:
    faulty = model()
    before = ir.to_proto(faulty).SerializeToString()
    assert offered(faulty) == {"half-fill": 1, "multiplied-mask": 1, "empty-rows": 1}
    assert ir.to_proto(faulty).SerializeToString() == before


def test_only_what_is_asked_for_is_applied_in_the_order_of_the_table() -> None:
    faulty = model()
    assert apply(faulty, ["half-fill"]) == {"half-fill": 1}
    assert offered(faulty) == {"multiplied-mask": 1, "empty-rows": 1}
    assert list(apply(faulty, ["empty-rows", "multiplied-mask"])) == ["multiplied-mask", "empty-rows"]
    assert offered(faulty) == {}
    assert apply(faulty, REPAIRS) == dict.fromkeys(REPAIRS, 0)
    onnx.checker.check_model(ir.to_proto(faulty), full_check=True)


def test_an_unknown_repair_is_refused_before_anything_is_done() -> None:
    faulty = model()
    before = ir.to_proto(faulty).SerializeToString()
    with pytest.raises(OptimizeError, match="there is no repair 'everything'; give rotary-batch, rms-norm-types"):
        apply(faulty, ["half-fill", "everything"])
    assert ir.to_proto(faulty).SerializeToString() == before


def test_an_export_gets_those_of_the_exporter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = model()
    assert repair(faulty) == ()
    assert {name for name, one in REPAIRS.items() if one.of_exports} == {"rotary-batch", "rms-norm-types"}


def test_the_table_says_which_change_what_a_model_means() -> None:
    assert {name for name, one in REPAIRS.items() if one.changes_meaning} == {"multiplied-mask"}
    assert all(one.summary and one.make.__doc__ for one in REPAIRS.values())
    assert {one.make.__name__ for one in REPAIRS.values()} <= set(repairs.__all__)
