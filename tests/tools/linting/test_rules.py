"""Each rule finds what it is for, and no near miss; rewrites of a graph hide nothing."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from maskport.export.repairs import REPAIRS
from maskport.models import KeyPadding
from maskport.tools import lint
from maskport.tools.linting.rules import GROUPS, RULES

from ...export.symbolic.mutations import EACH
from .faulty import CASES, KEY, Make, body, claimed

FAULTY = [pytest.param(code, make, id=f"{code} {name}") for code, c in CASES.items() for name, make in c.faulty.items()]
CLEAN = [pytest.param(code, make, id=f"{code} {name}") for code, c in CASES.items() for name, make in c.clean.items()]


def codes(model: onnx.ModelProto, *select: str) -> set[str]:
    return {finding.rule.code for finding in lint(model, select=select).findings}


def test_every_rule_has_cases_and_says_what_to_do() -> None:
    assert CASES.keys() == RULES.keys()
    assert all(cases.faulty and cases.clean for cases in CASES.values())
    for code, rule in RULES.items():
        assert (rule.code, code[:3] in GROUPS, len(code)) == (code, True, 5)
        assert all(text.endswith(".") for text in (rule.what, rule.why))
        assert rule.fixable is None or rule.fixable in REPAIRS
    assert len({rule.name for rule in RULES.values()}) == len(RULES)


def test_every_repair_has_a_rule() -> None:
    assert {rule.fixable for rule in RULES.values()} - {None} == REPAIRS.keys()


@pytest.mark.parametrize(("code", "make"), FAULTY)
def test_the_fault_is_found(code: str, make: Make) -> None:
    model = make()
    before = model.SerializeToString(deterministic=True)
    (first, *_) = lint(model, select=[code]).findings
    assert first.rule.code == code
    assert first.message
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(("code", "make"), CLEAN)
def test_a_near_miss_is_not(code: str, make: Make) -> None:
    assert code not in codes(make())


# What is written on nodes goes with a rewrite that drops it.
ON_NODES = ("MP501", "MP503")


@pytest.mark.parametrize("rewrite", EACH)
@pytest.mark.parametrize(("code", "make"), [case for case in FAULTY if case.values[0] not in ON_NODES])
def test_a_rewrite_hides_nothing(code: str, make: Make, rewrite: str, tmp_path: Path) -> None:
    model = make()
    assert codes(EACH[rewrite](model, tmp_path), code) == {code}


@pytest.mark.parametrize("code", [code for code, rule in RULES.items() if rule.fixable])
def test_what_is_fixable_is_gone_after_its_repair(code: str) -> None:
    import onnx_ir as ir
    from maskport.export.repairs import apply

    for make in CASES[code].faulty.values():
        model = ir.from_proto(make())
        findings = lint(model, select=[code]).findings
        assert {finding.fixable for finding in findings} == {RULES[code].fixable}
        apply(model, [str(RULES[code].fixable)])
        assert codes(ir.to_proto(model), code) == set()


def test_a_claim_hides_no_fault() -> None:
    (finding,) = lint(claimed(KeyPadding("m"), body(KEY, "masked = Div(s, key)"))(), select=["MP1"]).findings
    assert (finding.rule.code, finding.fixable) == ("MP101", None)
