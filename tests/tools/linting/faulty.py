"""For each rule of the linter: files that it must find, and near misses that it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir
from maskport.export.inspector import inspect
from maskport.export.precision import to_precision
from maskport.export.sites_metadata import SITE_KEY, claim, write_sites
from maskport.models import Causal, KeyPadding

from ...export.symbolic.attention_text import attention

Make = Callable[[], onnx.ModelProto]


@dataclass(frozen=True)
class Cases:
    """Files by a name: those that have the fault, and those that almost do."""

    faulty: dict[str, Make]
    clean: dict[str, Make] = field(default_factory=dict)


def graph(text: str, opset: int = 23) -> onnx.ModelProto:
    """Return a model of ONNX text without its header."""
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "own": 1]> {text}'
    )


def body(*lines: str, inputs: str = "int64[B,S] m", after: str = "y = MatMul(w, v)") -> Make:
    return lambda: attention("\n ".join(lines), inputs, after=after)


def operator(node: str, inputs: str, *lines: str, dtype: str = "float", opset: int = 24) -> Make:
    """Make a model of one operator on q, k and v [B, S, 16], after other nodes."""
    of = f"{dtype}[B,S,16]"
    constants = "axis = Constant<value_ints=[1]>() one = Constant<value_int=1>() total = Constant<value_int=7>()"
    nodes = " ".join((constants, *lines, f"y = {node}"))
    return lambda: graph(f"g ({of} q, {of} k, {of} v, {inputs}) => ({of} y) {{ {nodes} }}", opset)


def with_metadata(make: Make, **entries: str) -> Make:
    def made() -> onnx.ModelProto:
        model = make()
        for key, value in entries.items():
            model.metadata_props.add(key=key.replace("__", "."), value=value)
        return model

    return made


def traced(text: str) -> Make:
    """Make a model whose Softmax has a stack trace."""

    def made() -> onnx.ModelProto:
        model = PADDED()
        next(node for node in model.graph.node if node.op_type == "Softmax").metadata_props.add(
            key="pkg.torch.onnx.stack_trace", value=text
        )
        return model

    return made


def claimed(mask: object, make: Make | None = None) -> Make:
    """Make a file whose attention is `padding(m)`, or what is made, and that claims another mask for it."""

    def made() -> onnx.ModelProto:
        model = ir.from_proto((make or PADDED)())
        (site,) = inspect(PADDED()).sites
        for node in model.graph:
            if node.op_type == "Softmax":
                node.metadata_props[SITE_KEY] = site.name
        entry = claim(site)
        write_sites(model, [type(entry)(**{**vars(entry), "mask": mask})])
        return ir.to_proto(model)

    return made


def half(make: Make) -> Make:
    return lambda: ir.to_proto(to_precision(ir.from_proto(make()), "float16"))


def renamed(make: Make) -> Make:
    """Make a model whose mask `m` has a name that says what it is."""

    def made() -> onnx.ModelProto:
        model = ir.from_proto(make())
        next(value for value in model.graph.inputs if value.name == "m").name = "attention_mask"
        return ir.to_proto(model)

    return made


def fixed(make: Make) -> Make:
    """Make a model whose inputs have no free size."""

    def made() -> onnx.ModelProto:
        model = make()
        for value in (*model.graph.input, *model.graph.output):
            for dim, size in zip(value.type.tensor_type.shape.dim, (2, 4, 5, 8), strict=False):
                if dim.dim_param:
                    dim.dim_value = {"B": 2, "S": 5}.get(dim.dim_param, size)
        return model

    return made


# Put together, so that no file of the project names a folder of a machine.
HOME, WINDOWS = "/".join(("", "home", "ann")), "\\".join(("C:", "Users", "ann", ""))
KEY = "c8 = Cast<to=1>(m)\n key = Unsqueeze(c8, key_axes)"
OFF = "c8 = Cast<to=1>(m)\n hidden = Sub(f1, c8)\n off = Unsqueeze(hidden, key_axes)"
BOOL = "b = Cast<to=9>(m)\n k8 = Unsqueeze(b, key_axes)"
CAUSAL = "c = GreaterOrEqual(queries, keys)"
PADDED = body(BOOL, "masked = Where(k8, s, low)")
CAUSAL_ONLY = body(CAUSAL, inputs="")
POOLED = "x = MatMul(w, v)\n c1 = Cast<to=1>(attention_mask)\n u = Unsqueeze(c1, query_axes)\n y = Mul(x, u)"
MASKED = "b = Cast<to=9>(attention_mask)\n k8 = Unsqueeze(b, key_axes)"
MASK = "int64[B,S] attention_mask"
PADDING = "bool[B,S] key_padding_mask"
COUNT = "n64 = ReduceSum<keepdims=0>(attention_mask, axis)"
LENGTHS = (COUNT, "less = Sub(n64, one)", "n = Cast<to=6>(less)", "t = Cast<to=6>(total)")
GQA = "com.microsoft.GroupQueryAttention<num_heads=2, kv_num_heads=2>(q, k, v, , , n, t)"
MHA = "com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, , n)"
ONNX = "Attention<q_num_heads=2, kv_num_heads=2{}>(q, k, v{})"
POSITIONS = (
    "shape = Shape(q) length = Gather(shape, one) zero = Constant<value_int=0>() first = Constant<value_ints=[0]>()",
    "p = Range(zero, length, one) row = Unsqueeze(p, first) column = Unsqueeze(p, axis)",
    "c = GreaterOrEqual(column, row)",
)
SQUARE = "square5 = Constant<value=bool[5,5] {1,0,0,0,0, 1,1,0,0,0, 1,1,1,0,0, 1,1,1,1,0, 1,1,1,1,1}>()"
WEIGHT = """square8 = Constant<value=float[2,2] {1,0,0,1}>()
 sums = ReduceSum<keepdims=1>(square8)
 far = Less(keys, queries)
 near = Cast<to=1>(far)
 bias = Mul(near, sums)"""
CUT = "cut = Slice(square5, start, end, both)"
ENDS = (
    "start = Constant<value_ints=[0,0]>()\n end = Concat<axis=0>(length, length)\n both = Constant<value_ints=[0,1]>()"
)
FIRST = "five = Constant<value_ints=[0,1,2,3,4]>()"
ASSUMES = '{"version": 1, "assumes": [{"input": "attention_mask", "check": "right_padded", "axis": -1}]}'
FOR_CPU = '{"version": 1, "optimized": {"target": "cpu"}}'
ROTARY = "g (float[B,1,S,4] x, float[{},S,2] cos) => (float[B,1,S,4] y) {{ y = RotaryEmbedding(x, cos, cos) }}"
NORM = "g (float16[B,4] x, {}[4] scale) => ({}[B,4] y) {{ y = RMSNormalization(x, scale) }}"
# Numbers of float16 are given by their bits: 0, 1, the lowest and -inf.
SEQUENCE_FIRST = """g (float[batch,seq,8] x) => (float[C,D,8] y) {
  q = Transpose<perm=[1,0,2]>(x)  kt = Transpose<perm=[1,2,0]>(x)  s = MatMul(q, kt)
  w = Softmax<axis=-1>(s)  y = MatMul(w, q) }"""
EMBEDDED = """g (int32[B,S] input_ids, int32[B,S] types, int32[B,S] attention_mask, float[9,8] word,
  float[9,8] position,
  float[2,8] segment, float[8] gamma, float[8] beta, float[8,24] w, float[24] b) => (float[B,S,8] y) {
  x, n = com.microsoft.EmbedLayerNormalization(
    input_ids, types, word, position, segment, gamma, beta, attention_mask)
  y = com.microsoft.Attention<num_heads=2>(x, w, b, n) }"""
FIRST_ROWS = """g (float[batch,seq,4] x, int64[2,1] rows) => (float[C,D,4] y) {
  two = Constant<value=int64[2,1] {0,1}>()  turned = Transpose<perm=[1,0,2]>(x)  y = GatherND(x, two) }"""
HALF = """g (float16[B,4,S,8] q, float16[B,4,8,S] kt, float16[B,4,S,8] v, int64[B,S] m) => (float16[B,4,S,8] y) {{
  axes = Constant<value_ints=[1,2]>()  f0 = Constant<value=float16 {{0}}>()  f1 = Constant<value=float16 {{15360}}>()
  low = Constant<value=float16 {{64511}}>()  inf = Constant<value=float16 {{64512}}>()
  c = Cast<to=9>(m)  k8 = Unsqueeze(c, axes)  number = Cast<to=10>(k8)  off = Sub(f1, number)
  s = MatMul(q, kt)
  {mask}
  masked = Add(s, added)  w = Softmax<axis=-1>(masked)  y = MatMul(w, v)
}}"""
KEYS = "g (float[B,2,S,4] q, float[B,2,T,4] k, bool[B,1,{},T] m) => (float[B,2,S,4] y) {{ y = Attention(q, k, k, m) }}"


def reshaped(*sizes: int) -> Make:
    return body(
        f"to = Constant<value_ints={list(sizes)}>()", CAUSAL, inputs="", after="x = MatMul(w, v)\n y = Reshape(x, to)"
    )


CASES: dict[str, Cases] = {
    "MP101": Cases(
        {
            "padding": body(KEY, "masked = Mul(s, key)"),
            "before the scale": body(KEY, "p = Mul(raw, key)", "masked = Mul(p, scale)"),
            "causal": body(CAUSAL, "t = Cast<to=1>(c)", "masked = Mul(s, t)", inputs=""),
        },
        {
            "a mask that fills": PADDED,
            "a factor": body("p = Mul(s, f30)", CAUSAL, "masked = Where(c, p, low)", inputs=""),
            "weights that are multiplied": body(
                KEY, BOOL, "masked = Where(k8, s, low)", after="z = Mul(w, key)\n y = MatMul(z, v)"
            ),
        },
    ),
    "MP102": Cases(
        {
            "never read": body(CAUSAL, inputs=MASK),
            "of which the shape is used": body(
                "n = Shape(attention_mask)", "more = Expand(f0, n)", CAUSAL, inputs=MASK
            ),
        },
        {
            "a mask that masks": PADDED,
            "what is assumed of it": with_metadata(body(CAUSAL, inputs=MASK), maskport__assumes=ASSUMES),
            "another input": body(CAUSAL, inputs="float[B,S] other"),
        },
    ),
    "MP103": Cases(
        {"pooled with it": body(CAUSAL, inputs=MASK, after=POOLED)},
        {
            "both": body(MASKED, "masked = Where(k8, s, low)", inputs=MASK, after=POOLED),
            "never read": body(CAUSAL, inputs=MASK),
            "no attention": lambda: graph(
                "g (float[B,S] attention_mask) => (float[B,S] y) { y = Neg(attention_mask) }"
            ),
        },
    ),
    "MP104": Cases(
        {
            "attention_mask": body(MASKED, "masked = Where(k8, low, s)", inputs=MASK),
            "key_padding_mask": body(
                "k8 = Unsqueeze(key_padding_mask, key_axes)", "masked = Where(k8, s, low)", inputs=PADDING
            ),
            "by what the file says": with_metadata(
                PADDED,
                maskport__io='{"version": 1, "inputs": {"m": {"role": "mask", "axes": ["b", "s"], "pad": 1}}, '
                '"outputs": {}}',
            ),
        },
        {
            "attention_mask": body(MASKED, "masked = Where(k8, s, low)", inputs=MASK),
            "key_padding_mask": body(
                "k8 = Unsqueeze(key_padding_mask, key_axes)", "masked = Where(k8, low, s)", inputs=PADDING
            ),
            "a name that says nothing": body(BOOL, "masked = Where(k8, low, s)"),
        },
    ),
    "MP105": Cases(
        {
            "lengths of GroupQueryAttention": operator(GQA, MASK, *LENGTHS),
            "lengths of MultiHeadAttention": operator(MHA, MASK, COUNT, "n = Cast<to=6>(n64)"),
            "lengths of a fused embedding": lambda: graph(EMBEDDED),
            "lengths of ai.onnx Attention": operator(ONNX.format("", ", , , , n64"), MASK, COUNT),
        },
        {
            "lengths that the caller gives": operator(MHA, "int32[B] n"),
            "what the file assumes": with_metadata(operator(GQA, MASK, *LENGTHS), maskport__assumes=ASSUMES),
            "the mask itself": operator(MHA, MASK, "n = Cast<to=6>(attention_mask)"),
        },
    ),
    "MP106": Cases(
        {
            "causal": operator(ONNX.format("", ", c"), "float[B] other", *POSITIONS),
            "causal and padding": operator(
                ONNX.format("", ", both"),
                "bool[B,S] mask",
                *POSITIONS,
                "axes = Constant<value_ints=[1,2]>() keys = Unsqueeze(mask, axes) both = And(keys, c)",
            ),
        },
        {
            "an attribute": operator(ONNX.format(", is_causal=1", ""), "float[B] other"),
            "a tensor that the caller gives": operator(ONNX.format("", ", m"), "bool[B,1,S,S] m"),
            "decomposed": CAUSAL_ONLY,
        },
    ),
    "MP107": Cases(
        {"the first axis": lambda: graph(SEQUENCE_FIRST)},
        {
            "a sequence that stands first": lambda: graph(SEQUENCE_FIRST.replace("batch,seq", "seq,batch")),
            "the second axis": lambda: graph(
                SEQUENCE_FIRST.replace("[1,0,2]", "[0,1,2]").replace("[1,2,0]", "[0,2,1]")
            ),
            "heads": CAUSAL_ONLY,
        },
    ),
    "MP201": Cases(
        {
            "a reshape": reshaped(-1, 4, 5, 8),
            "all of a shape": reshaped(2, 4, 5, 8),
            "a mask of five": body(SQUARE, "masked = Where(square5, s, low)", inputs=""),
            "the first five": body(CAUSAL, FIRST, inputs="", after="x = MatMul(w, v)\n y = Gather<axis=2>(x, five)"),
            "as PyTorch indexes": lambda: graph(FIRST_ROWS.replace("(x, two)", "(turned, two)")),
        },
        {
            "what is left": reshaped(0, 4, -1, 8),
            "heads apart": reshaped(-1, 2, 2, 8),
            "sizes that the graph takes": body(
                CAUSAL, "to = Shape(q)", inputs="", after="x = MatMul(w, v)\n y = Reshape(x, to)"
            ),
            "a mask that is cut": body(SQUARE, ENDS, CUT, "masked = Where(cut, s, low)", inputs=""),
            "the first alone": body(CAUSAL, inputs="", after="x = MatMul(w, v)\n y = Gather<axis=2>(x, axis0)"),
            "five of a fixed size": body(
                CAUSAL, FIRST, inputs="", after="x = MatMul(w, v)\n y = Gather<axis=3>(x, five)"
            ),
            "no free size": fixed(reshaped(2, 4, 5, 8)),
        },
    ),
    "MP202": Cases(
        {
            "a reshape": reshaped(2, 4, -1, 8),
            "as PyTorch indexes": lambda: graph(FIRST_ROWS),
            "a constant of two rows": body(
                "two_rows = Constant<value=bool[2,1,1,1] {1,1}>()", "masked = Where(two_rows, s, low)", inputs=""
            ),
        },
        {
            "rows that are chosen": lambda: graph(FIRST_ROWS.replace("(x, two)", "(x, rows)")),
            "what is left": reshaped(0, 4, -1, 8),
            "all rows in one": reshaped(-1, 8),
            "no free size": fixed(PADDED),
        },
    ),
    "MP203": Cases(
        {"a mask that is cut": body(SQUARE, ENDS, CUT, "masked = Where(cut, s, low)", inputs="")},
        {
            "positions": CAUSAL_ONLY,
            "a weight": body(WEIGHT, "masked = Add(s, bias)", inputs=""),
            "a mask of five": body(SQUARE, "masked = Where(square5, s, low)", inputs=""),
        },
    ),
    "MP204": Cases({"all sizes": fixed(PADDED)}, {"free sizes": PADDED}),
    "MP301": Cases(
        {
            "a product": body(OFF, "added = Mul(off, inf)", "masked = Add(s, added)"),
            "in half": lambda: graph(HALF.format(mask="added = Mul(off, inf)")),
        },
        {
            "a choice": body(BOOL, "added = Where(k8, f0, inf)", "masked = Add(s, added)"),
            "a finite fill": body(OFF, "added = Mul(off, low)", "masked = Add(s, added)"),
        },
    ),
    "MP302": Cases(
        {
            "chosen": body(CAUSAL, "masked = Where(c, s, ten)", inputs=""),
            "added": body(CAUSAL, "added = Where(c, f0, ten)", "masked = Add(s, added)", inputs=""),
            "multiplied": renamed(body(OFF, "added = Mul(off, ten)", "masked = Add(s, added)")),
            "zero": body(CAUSAL, "masked = Where(c, s, f0)", inputs=""),
        },
        {
            "the lowest": body(CAUSAL, "masked = Where(c, s, low)", inputs=""),
            "-1e4": body(CAUSAL, "f = Constant<value_float=-10000.0>()", "masked = Where(c, s, f)", inputs=""),
            "a bias": body(
                "d = Sub(queries, keys)\n e = Cast<to=1>(d)\n added = Mul(e, ten)", "masked = Add(s, added)"
            ),
        },
    ),
    "MP303": Cases(
        {
            "filled": body(BOOL, "masked = Where(k8, s, inf)"),
            "added": body(BOOL, "added = Where(k8, f0, inf)", "masked = Add(s, added)"),
            "left padding under causal": body(BOOL, "past = GreaterOrEqual(queries, keys)", "c = And(k8, past)"),
        },
        {
            "a finite fill": PADDED,
            "causal": CAUSAL_ONLY,
            "guarded": body(BOOL, "c = Identity(k8)", after="n = IsNaN(w)\n z = Where(n, f0, w)\n y = MatMul(z, v)"),
        },
    ),
    "MP304": Cases(
        {"added": lambda: graph(HALF.format(mask="added = Where(k8, f0, low)"))},
        {
            "in float32": body(BOOL, "added = Where(k8, f0, low)", "masked = Add(s, added)"),
            "half of the lowest": lambda: graph(
                HALF.format(mask="near = Constant<value=float16 {63487}>()  added = Where(k8, f0, near)")
            ),
            "as Maskport converts it": half(body(BOOL, "added = Where(k8, f0, low)", "masked = Add(s, added)")),
        },
    ),
    "MP305": Cases(
        {"the lowest": body(OFF, "added = Mul(off, low)", "masked = Add(s, added)")},
        {
            "-1e4": body(OFF, "f = Constant<value_float=-10000.0>()", "added = Mul(off, f)", "masked = Add(s, added)"),
            "a choice": PADDED,
        },
    ),
    "MP401": Cases(
        {"something between": body("masked = Relu(s)", inputs="")},
        {
            "attention": PADDED,
            "a classifier": lambda: graph("g (float[B,4] x) => (float[B,4] y) { y = Softmax<axis=-1>(x) }"),
            "a fault with a rule of its own": body(CAUSAL, "masked = Where(c, s, ten)", inputs=""),
        },
    ),
    "MP402": Cases({"decomposed": PADDED}, {"an operator": operator(ONNX.format("", ""), "float[B] other")}),
    "MP403": Cases({"one row": lambda: graph(KEYS.format(1))}, {"a row for each": lambda: graph(KEYS.format("S"))}),
    "MP404": Cases({"batch 1": lambda: graph(ROTARY.format(1))}, {"its batch": lambda: graph(ROTARY.format("B"))}),
    "MP405": Cases(
        {"two types": lambda: graph(NORM.format("float", "float"))},
        {"one type": lambda: graph(NORM.format("float16", "float16"))},
    ),
    "MP406": Cases(
        {
            "a window": operator(ONNX.format(", left_window_size=3", ""), "float[B] other", opset=25),
            "an operator of someone's own": lambda: graph("g (float[B] x) => (float[B] y) { y = own.Thing(x) }"),
        },
        {
            "no window": operator(ONNX.format("", ""), "float[B] other", opset=25),
            "one of ONNX Runtime's": operator(MHA, "int32[B] n"),
        },
    ),
    "MP407": Cases(
        {"float32": operator(GQA, "int32[B] n, int32 t")},
        {
            "float16": operator(GQA, "int32[B] n, int32 t", dtype="float16"),
            "an operator with a kernel": operator(MHA, "int32[B] n"),
            "made for the CPU": with_metadata(operator(GQA, "int32[B] n, int32 t"), maskport__certificate=FOR_CPU),
        },
    ),
    "MP501": Cases(
        {
            "a stack trace": traced(f'File "{HOME}/model.py", line 3, in forward'),
            "Windows": traced(f'File "{WINDOWS}model.py", line 3, in forward'),
            "metadata": with_metadata(PADDED, source=f"made in {HOME}"),
        },
        {
            "a relative trace": traced('File "project/home/model.py", line 3, in forward'),
            "an address": traced(f"see https://example.com{HOME}/model or http://localhost:80{HOME}"),
            "names of nodes": traced("/encoder/layers.0/home/MatMul"),
        },
    ),
    "MP502": Cases(
        {"never read": body(CAUSAL, inputs="float[B,S] other")},
        {
            "a mask": body(CAUSAL, inputs=MASK),
            "read": body(CAUSAL, inputs="float[B,4,S,8] other", after="x = MatMul(w, v)\n y = Add(x, other)"),
        },
    ),
    "MP503": Cases(
        {"another mask": claimed(Causal() & KeyPadding("m"))},
        {"its mask": claimed(KeyPadding("m")), "no claim": PADDED},
    ),
}
