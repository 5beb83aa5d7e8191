"""Tokens that the caller names: what they must give, that dummies have no say, and what the file says of it."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from maskport.export import ExportError, OptimizeError, optimize
from maskport.export.optimized import Optimized
from maskport.export.packing.host_inputs import BUCKET, PACKING_KEY, host_inputs
from maskport.models import Causal, KeyPadding, Mask, Segments, Window
from maskport.runtime import Session
from maskport.tools.model_layout import layout_of

from ..lowering.canonical_models import run, run_twins
from .token_models import (
    PATTERNS,
    TOLERANCE,
    attend,
    feeds,
    made_by,
    mask_model,
    masked,
    model,
    operators,
    same,
    why_not,
)

TARGET = "cuda:sm90"
# The last has more tokens than fit into one bucket.
SIZES = ((3, 7), (1, 5), (2, 1), (3, 40))
TWO_LAYERS = f"{attend('h', 'o1')}\n{attend('o1', 'o', weights='u')}"
CAPPED = attend("h", "o", scores="o_d = Div(o_s, f2)\n o_e = Tanh(o_d)\n o_t = Mul(o_e, f2)")
POOLED = "first = Gather<axis=1>(o, i0)\n v = MatMul(first, matrix)\n y = Identity(o)"
END = "h = Identity(x)\n end = Constant<value_int=-1>()"
BOTH = "float[B,S,16] y, float[B,16] v"


def causal_model(low: float = -1e9) -> onnx.ModelProto:
    return mask_model(Causal() & KeyPadding("m"), layers=2, low=low)


MODELS = {
    "padding": (lambda: model(attention=TWO_LAYERS), "PackedMultiHeadAttention"),
    "padding, a mask of bool": (lambda: model(attention=TWO_LAYERS, mask_type="bool"), "PackedMultiHeadAttention"),
    "causal": (causal_model, "Attention"),
    "a window": (lambda: mask_model(Window(2, 1) & KeyPadding("m"), layers=2), None),
    "segments": (lambda: mask_model(Segments("s") & KeyPadding("m"), layers=2), None),
    "a first token that is picked": (
        lambda: model(POOLED, attention=TWO_LAYERS, outputs=BOTH),
        "PackedMultiHeadAttention",
    ),
    # Where dummies would be put if they had no place of their own.
    "a last token that is picked": (
        lambda: model(POOLED.replace("i0", "end"), before=END, attention=TWO_LAYERS, outputs=BOTH),
        "PackedMultiHeadAttention",
    ),
    "a first token that is picked, softcap": (lambda: model(POOLED, attention=CAPPED, outputs=BOTH), "Attention"),
}


def host(source: onnx.ModelProto, target: str = TARGET, **options: str) -> Optimized:
    result = made_by(source, target, packing="host", **options)
    assert not why_not(result)
    return result


def names_of(result: Optimized) -> list[str]:
    return [str(value.name) for value in result.model.graph.inputs]


@pytest.mark.parametrize("padding_rows", ["any", "zero"])
@pytest.mark.parametrize("name", MODELS)
def test_it_does_what_the_source_does(name: str, padding_rows: str) -> None:
    make, operator = MODELS[name]
    source = make()
    result = host(source, padding_rows=padding_rows)
    assert operator is None or operator in operators(result)
    assert not {"NonZero", "Compress", "If", "Loop"}.intersection(operators(result))
    for batch, length in SIZES:
        for pattern in PATTERNS:
            given = feeds(source, batch, length, pattern)
            expected = run(ir.from_proto(source), given)
            told = host_inputs(result.model.metadata_props, given)
            actual = run_twins(result.model, given | told)
            for output, value in expected.items():
                what = f"{batch}, {length}, {pattern}: {output}"
                same(what, given["m"], actual[output], value, TOLERANCE)
                if output == "y":
                    assert not actual[output][given["m"] == 0].any(), what


# Where the last token is picked, dummies have what it has, and it has a say.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "a last token that is picked"])
def test_dummies_have_no_say_whatever_they_hold(name: str) -> None:
    source = MODELS[name][0]()
    result = host(source)
    batch, length = 3, 9
    for pattern in ("right", "holes", "one"):
        given = feeds(source, batch, length, pattern)
        # What dummies have is the last place's, which is padding here.
        given["m"][-1, -1], given["m"][-1, 1] = 0, 1
        told = host_inputs(result.model.metadata_props, given)
        expected = run_twins(result.model, given | told)
        nothing = {**given, "x": given["x"].copy()}
        nothing["x"][-1, -1] = np.nan
        more = {**told, "m.tokens": np.concatenate([told["m.tokens"], np.full(30, -1)])}
        for inputs in (nothing | told, nothing | more, given | more):
            assert (inputs["m.tokens"] == -1).sum() > 1
            actual = run_twins(result.model, inputs)
            for output, value in expected.items():
                np.testing.assert_allclose(actual[output], value, rtol=1e-5, atol=1e-6)


def test_the_result_is_proven_and_says_which_inputs_tell_tokens() -> None:
    source = model(POOLED, attention=TWO_LAYERS, outputs=BOTH)
    result = optimize(source, target=TARGET, padding_rows="zero", packing="host")
    assert result.proof is not None
    assert result.proof.worst is not None
    assert names_of(result) == ["x", "m", "m.tokens", "m.lengths"]
    written = json.loads(result.model.metadata_props[PACKING_KEY])
    entry = {"mask": "m", "pad": 0, "tokens": "m.tokens", "lengths": "m.lengths", "places": [0], "bucket": BUCKET}
    assert written == {"version": 1, "masks": [entry]}
    described = json.loads(result.model.metadata_props["maskport.io"])["inputs"]
    assert {name: value["role"] for name, value in described.items()} == {
        "x": "tokens",
        "m": "mask",
        "m.tokens": "packing",
        "m.lengths": "packing",
    }
    assert described["m"]["pad"] == 0
    assert described["m.lengths"]["axes"] == ["B"]


def test_what_the_file_said_of_its_inputs_stays() -> None:
    source = model(attention=TWO_LAYERS)
    io = {"version": 1, "inputs": {"x": {"role": "other", "axes": ["B", "S", 16]}}, "outputs": {"y": {"axes": ["B"]}}}
    source.metadata_props.add(key="maskport.io", value=json.dumps(io))
    found = json.loads(host(source).model.metadata_props["maskport.io"])
    assert found["inputs"]["x"] == io["inputs"]["x"]
    assert found["outputs"] == io["outputs"]
    assert found["inputs"]["m.tokens"]["role"] == "packing"


def test_each_mask_has_inputs_of_its_own() -> None:
    """Two sequences that know nothing of each other, each with a mask."""
    other = "shown2 = Cast<to=9>(n)\n padded2 = Unsqueeze(shown2, axes12)\n h2 = Identity(z)"
    source = model(
        f"y = Identity(o)\n {attend('h2', 'y2', 'padded2', weights='u')}",
        before=f"h = Identity(x)\n {other}",
        inputs="float[B,U,16] z, int64[B,U] n",
        outputs="float[B,S,16] y, float[B,U,16] y2",
    )
    result = host(source)
    assert names_of(result) == ["x", "m", "z", "n", "m.tokens", "m.lengths", "n.tokens", "n.lengths"]
    random = np.random.default_rng(0)
    for pattern in PATTERNS:
        given = {
            name: random.standard_normal((3, length, 16)).astype(np.float32) for name, length in (("x", 7), ("z", 5))
        }
        given |= {"m": masked(pattern, 3, 7, random), "n": masked("holes", 3, 5, random)}
        expected = run(ir.from_proto(source), given)
        actual = run_twins(result.model, given | host_inputs(result.model.metadata_props, given))
        same(pattern, given["m"], actual["y"], expected["y"], TOLERANCE)
        same(pattern, given["n"], actual["y2"], expected["y2"], TOLERANCE)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_session_tells_the_tokens_by_itself(pattern: str) -> None:
    source = causal_model()
    session = Session(ir.to_proto(host(source).model).SerializeToString(), device="cpu")
    assert list(layout_of(session).inputs) == session.input_names == ["x", "m"]
    for batch, length in SIZES:
        given = feeds(source, batch, length, pattern)
        same(
            f"{batch}, {length}", given["m"], session.run(given)["y"], run(ir.from_proto(source), given)["y"], TOLERANCE
        )


@pytest.mark.parametrize("text", ['{"version": 7, "inputs": {}}', '{"version": 1}'])
def test_what_the_file_says_of_its_inputs_and_can_not_be_read_is_refused(text: str) -> None:
    source = model(attention=TWO_LAYERS)
    source.metadata_props.add(key="maskport.io", value=text)
    with pytest.raises(ExportError, match=r"the file's maskport\.io (has version 7|is damaged)"):
        host(source)


@pytest.mark.parametrize("mask", [KeyPadding("m", pad=1), KeyPadding("m", pad=2)])
def test_the_value_that_hides_is_the_masks(mask: Mask) -> None:
    source = mask_model(mask)
    result = host(source)
    pad = json.loads(result.model.metadata_props[PACKING_KEY])["masks"][0]["pad"]
    assert str(KeyPadding("m", pad=pad)) == str(mask)
    for pattern in PATTERNS:
        given = feeds(source, 3, 7, pattern)
        real = masked(pattern, 3, 7, np.random.default_rng(0))
        given["m"] = np.where(real, pad - 1, pad)
        expected = run(ir.from_proto(source), given)
        told = host_inputs(result.model.metadata_props, given)
        same(pattern, real, run_twins(result.model, given | told)["y"], expected["y"], TOLERANCE)


def test_a_mask_that_the_graph_computes_is_not_packed() -> None:
    source = model()
    place = next(n for n, node in enumerate(source.graph.node) if node.output[0] == "shown")
    source.graph.node[place].input[0] = "summed"
    source.graph.node.insert(place, onnx.helper.make_node("CumSum", ["m", "i1"], ["summed"]))
    result = made_by(source, TARGET, packing="host")
    assert "reads the mask where it is given, and 'summed' is computed in the graph" in why_not(result)
    assert names_of(result) == ["x", "m"]
    assert PACKING_KEY not in result.model.metadata_props


def test_a_name_that_is_taken_is_not_given_twice() -> None:
    source = model(inputs="int64[B] lengths_of")
    source.graph.input[2].name = "m.lengths"
    result = made_by(source, TARGET, packing="host")
    assert "the model has an input 'm.lengths' already" in why_not(result)
    assert names_of(result) == ["x", "m", "m.lengths"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "cpu"}, "packing='host' can't be had: the CPU reads nothing back; give packing='auto'"),
        ({"target": TARGET, "padding_rows": "keep"}, "packing='host' can't be had: padding rows that are kept stay"),
    ],
)
def test_it_is_for_cuda_and_for_padding_that_may_change(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptimizeError, match=message):
        optimize(model(), packing="host", **options)
