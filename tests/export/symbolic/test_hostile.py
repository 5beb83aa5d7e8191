"""A broken or hostile graph ends in a clear error or a clean report, in seconds and in little memory."""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from maskport.export import InspectError, inspect
from maskport.export.report import Report
from onnx import TensorProto, helper, numpy_helper

from .attention_text import attention

# Of one call, on a slow and busy machine.
SECONDS = 20


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < SECONDS


def chain(operator: str, count: int, first: str, last: str, **attributes: object) -> list[onnx.NodeProto]:
    names = [first, *(f"{operator}_{n}" for n in range(count - 1)), last]
    return [helper.make_node(operator, [a], [b], **attributes) for a, b in itertools.pairwise(names)]


def with_nodes(nodes: list[onnx.NodeProto], body: str = "masked = Where(c, s, inf)", **more: str) -> onnx.ModelProto:
    """Return an attention with `nodes`, which make `c`, before its body."""
    model = attention(f"c = Greater(queries, keys)\n {body}", **more)
    kept = list(model.graph.node)
    place = next(place for place, node in enumerate(kept) if node.output[0] == "c")
    del model.graph.node[:]
    model.graph.node.extend([*kept[:place], *nodes, *kept[place + 1 :]])
    return model


def test_a_chain_of_ten_thousand_nodes() -> None:
    """An even number of negations is none; what is too deep for that is a value of the graph."""
    compare = helper.make_node("GreaterOrEqual", ["queries", "keys"], ["c0"])
    (site,) = inspect(with_nodes([compare, *chain("Not", 10_000, "c0", "c")])).sites
    assert str(site.mask).startswith(("~dense(", "dense("))
    (site,) = inspect(with_nodes([compare, *chain("Not", 100, "c0", "c")])).sites
    assert str(site.mask) == "causal"


def test_scores_through_ten_thousand_nodes() -> None:
    model = attention("masked = Identity(s)")
    (place,) = (place for place, node in enumerate(model.graph.node) if node.output[0] == "masked")
    added = [helper.make_node("Add", ["s" if not n else f"a{n}", "f1"], [f"a{n + 1}"]) for n in range(10_000)]
    model.graph.node[place].input[0] = "a10000"
    kept = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*kept[:place], *added, *kept[place:]])
    report = inspect(model)
    assert [unlifted.reason for unlifted in report.unlifted] == ["what leads to it is nested too deeply"]


@pytest.mark.parametrize("count", [20, 60, 200])
def test_a_mask_whose_tree_grows_twofold_with_each_node(count: int) -> None:
    first = helper.make_node("GreaterOrEqual", ["queries", "keys"], ["c0"])
    bits = [
        node
        for n in range(count)
        for node in (
            helper.make_node("Constant", [], [f"n{n}"], value_int=n + 2),
            helper.make_node("Mod", ["keys", f"n{n}"], [f"r{n}"]),
            helper.make_node("Equal", [f"r{n}", "zero"], [f"e{n}"]),
            helper.make_node("Xor", [f"c{n}", f"e{n}"], [f"c{n + 1}"]),
        )
    ]
    last = helper.make_node("Identity", [f"c{count}"], ["c"])
    (site,) = inspect(with_nodes([first, *bits, last])).sites
    assert "dense" in str(site.mask)


@pytest.mark.parametrize("count", [20, 60, 200])
def test_numbers_whose_choices_grow_twofold_with_each_node(count: int) -> None:
    nodes = [helper.make_node("Sub", ["queries", "keys"], ["x0"])]
    for n in range(count):
        nodes += [
            helper.make_node("Constant", [], [f"n{n}"], value_int=n),
            helper.make_node("Less", [f"n{n}", "keys"], [f"l{n}"]),
            helper.make_node("Add", [f"x{n}", f"n{n}"], [f"a{n}"]),
            helper.make_node("Where", [f"l{n}", f"a{n}", f"x{n}"], [f"x{n + 1}"]),
        ]
    nodes.append(helper.make_node("Greater", [f"x{count}", "zero"], ["c"]))
    report = inspect(with_nodes(nodes))
    assert len(report.sites) + len(report.unlifted) == 1


def test_scores_that_are_looked_for_twice_at_each_node() -> None:
    model = attention("r = Relu(s)\n masked = Identity(r)")
    kept = list(model.graph.node)
    place = next(place for place, node in enumerate(kept) if node.output[0] == "masked")
    added = [helper.make_node("Add", ["r" if not n else f"d{n}"] * 2, [f"d{n + 1}"]) for n in range(60)]
    kept[place].input[0] = "d60"
    del model.graph.node[:]
    model.graph.node.extend([*kept[:place], *added, *kept[place:]])
    report = inspect(model)
    assert report.sites == ()
    assert len(report.unlifted) == 1


def run_limited(code: str, gigabytes: int = 4) -> str:
    """Run Python code in a process of little memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (gigabytes << 30, gigabytes << 30))

    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limit,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    "body",
    [
        "n = Constant<value_ints=[1099511627776]>()\n o = Expand(one, n)\n t = ReduceMax<keepdims=0>(o)\n"
        "d = Mul(queries, t)\n c = GreaterOrEqual(d, keys)",
        "n = Constant<value_ints=[1048576,1048576]>()\n o = ConstantOfShape<value: tensor = int64[1] {1}>(n)\n"
        "t = ReduceMin<keepdims=0>(o)\n d = Mul(queries, t)\n c = GreaterOrEqual(d, keys)",
        "n = Constant<value_int=1099511627776>()\n r = Range(zero, n, one)\n t = ReduceMin<keepdims=0>(r)\n"
        "d = Add(queries, t)\n c = GreaterOrEqual(d, keys)",
        "n = Constant<value_ints=[1099511627776,1099511627776]>()\n o = Tile(keys, n)\n"
        "t = ReduceMin<keepdims=0>(o)\n d = Add(queries, t)\n c = GreaterOrEqual(d, keys)",
    ],
    ids=["Expand", "ConstantOfShape", "Range", "Tile"],
)
def test_enormous_shapes_are_not_made(body: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(attention(body), path)
    shown = run_limited(
        f"""
        import json
        from maskport.export import inspect
        print(json.dumps(inspect({str(path)!r}).to_json()))
        """
    )
    report = json.loads(shown)
    assert len(report["sites"]) + len(report["unlifted"]) == 1
    assert not any(site["verified"] for site in report["sites"])


def test_static_scores_that_are_too_large_are_read_and_not_run() -> None:
    model = attention("c = GreaterOrEqual(queries, keys)")
    for value in [*model.graph.input, *model.graph.output]:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                dim.dim_value = 8 if axis == 0 else 65_536
    (site,) = inspect(model).sites
    assert str(site.mask) == "causal"
    assert not site.verified
    assert site.note is not None
    assert "elements" in site.note


def test_a_large_baked_mask_takes_little_memory() -> None:
    model = attention("z = Constant<value_ints=[0,0]>()\n a = Constant<value_ints=[0,1]>()\n"
                      "c = Slice(baked, z, square, a)")  # fmt: skip
    model.graph.initializer.append(numpy_helper.from_array(np.tri(8192, dtype=bool), "baked"))
    (site,) = inspect(model).sites
    assert str(site.mask) == "causal"


def test_a_cycle() -> None:
    model = attention("c = GreaterOrEqual(queries, keys)")
    for node in model.graph.node:
        if node.output[0] == "queries":
            node.input[0] = "masked"
    _ends(model)


def test_a_node_that_reads_itself() -> None:
    model = attention("c = GreaterOrEqual(queries, keys)")
    for node in model.graph.node:
        if node.output[0] == "c":
            node.input[0] = "c"
    _ends(model)


def _read(model: Path | bytes | onnx.ModelProto, *, check: bool = True) -> Report | None:
    """Inspect what may be no model: None after an error of one line."""
    message = ""
    try:
        return inspect(model, check=check)
    except InspectError as error:
        message = str(error)
    assert len(message.splitlines()) == 1
    return None


def _ends(model: onnx.ModelProto) -> None:
    report = _read(model)
    assert report is None or not any(site.verified for site in report.sites)


@pytest.mark.parametrize("bytes_", [b"", b"\x00" * 100, b"not a model", b"\x08\x0a\x12" + b"\xff" * 50])
def test_bytes_that_are_no_model(bytes_: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(bytes_)
    for given in (path, bytes_):
        report = _read(given)
        assert report is None or report.sites == report.unlifted == ()


def test_a_file_that_is_cut_off_anywhere() -> None:
    whole = attention("c = GreaterOrEqual(queries, keys)").SerializeToString()
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        report = _read(whole[:place])
        assert report is None or len(report.sites) <= 1


def test_a_file_with_any_byte_changed() -> None:
    """Whatever it says then: an error of one line, or a report."""
    whole = attention("c = GreaterOrEqual(queries, keys)").SerializeToString()
    random = np.random.default_rng(0)
    for place in random.integers(0, len(whole), 150):
        changed = bytearray(whole)
        changed[place] = random.integers(0, 256)
        report = _read(bytes(changed), check=False)
        assert report is None or len(report.sites) <= 1


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a\nb", "'\"`", "\u202eevil", "名前", "x" * 10_000, "a & b | ~c"]
)
def test_names_with_odd_characters(name: str) -> None:
    model = attention("masked = Where(g, s, inf)", "bool[B,4,S,S] g")
    for node in model.graph.node:
        node.input[:] = [name if given == "g" else given for given in node.input]
    model.graph.input[-1].name = name
    model.graph.node[-2].name = name
    (site,) = inspect(model).sites
    assert list(site.mask.tensors) == [name]
    assert site.verified
    assert json.loads(json.dumps(site.to_json()))["node"] == name


def test_nodes_without_names_types_or_shapes() -> None:
    model = attention("c = GreaterOrEqual(queries, keys)")
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.ClearField("shape")
    report = inspect(model)
    assert len(report.sites) + len(report.unlifted) == 1
    empty = helper.make_model(helper.make_graph([], "", [], []))
    assert inspect(empty).sites == ()
    lone = helper.make_graph(
        [helper.make_node("Softmax", ["missing"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    _ends(helper.make_model(lone))


@pytest.mark.parametrize(
    "operator", ["Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedMultiHeadAttention"]
)
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_operators_that_lack_their_inputs(operator: str, domain: str) -> None:
    node = helper.make_node(operator, ["q"], ["y"], domain=domain)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("q", TensorProto.FLOAT, ["B", "S", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    report = inspect(helper.make_model(graph, opset_imports=opsets))
    assert report.sites == ()


@pytest.mark.parametrize("name", ["past", "q_len", "k_len", "device"])
def test_a_mask_by_a_name_that_masks_keep_for_themselves(name: str) -> None:
    body = f"padding = Unsqueeze({name}, key_axes)\n c = Cast<to=9>(padding)"
    (site,) = inspect(attention(body, f"int64[B,S] {name}")).sites
    assert (str(site.mask), site.verified) == ("dense(c)", True)
