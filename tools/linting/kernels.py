"""MP4xx: what ONNX Runtime makes of the file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import onnx_ir as ir

from ...export.lowering.canonical import canonicalize
from ...export.lowering.kernels import KERNELS as TABLE
from ...export.repairs import REPAIRS
from .rule import Found, Rule
from .subject import Subject

__all__ = ["KERNELS"]

FLOATS = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16", ir.DataType.BFLOAT16: "bfloat16"}


def _not_read(x: Subject) -> Iterator[Found]:
    for node, reason in x.attention.reasons.items():
        if reason.attention and reason.fault is None:
            yield Found(reason.reason, node)


def _not_lowered(x: Subject) -> Iterator[Found]:
    decomposed = [(site, report) for site, report in x.sites if site.form == "decomposed"]
    if not decomposed:
        return
    # Lowering changes a graph, so it is tried on another.
    other = Subject(x.model)
    _, refused = canonicalize(other.model, list(other.attention.sites), other.attention.names)
    for site, report in decomposed:
        why = refused.get(x.attention.names[site.node])
        told = "`maskport optimize` finds an attention kernel for it" if why is None else f"no kernel takes it: {why}"
        yield Found(f"it is computed by MatMul and Softmax; {told}", site.node, report.name)


def _repairable(name: str, message: str) -> Callable[[Subject], Iterator[Found]]:
    """Return a finder of what a repair finds, with a message in which {} is the operator."""

    def find(x: Subject) -> Iterator[Found]:
        for node in REPAIRS[name].make().find(x.model):
            yield Found(message.format(node.op_type), node, x.attention.names.get(node))

    return find


@functools.cache
def _known_attributes(domain: str, operator: str, version: int) -> frozenset[str] | None:
    """Return the attributes that the installed ONNX Runtime knows of an operator; None if it doesn't know that."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    schemas = [s for s in get_all_operator_schema() if (s.domain, s.name) == (domain, operator)]
    newest = max((s for s in schemas if s.since_version <= version), key=lambda s: s.since_version, default=None)
    return None if newest is None else frozenset(newest.attributes)


def _unknown(x: Subject) -> Iterator[Found]:
    versions = x.model.opset_imports
    for node in x.graph.all_nodes():
        domain = "" if node.domain == "ai.onnx" else node.domain
        name = f"{node.domain or 'ai.onnx'}.{node.op_type}"
        known = _known_attributes(domain, node.op_type, versions.get(domain, 1))
        if known is None:
            yield Found(f"the installed ONNX Runtime has no operator {name}", node, x.attention.names.get(node))
        elif unknown := sorted(node.attributes.keys() - known):
            yield Found(
                f"the installed ONNX Runtime knows no attribute {', '.join(unknown)} of {name}",
                node,
                x.attention.names.get(node),
            )


def _on_the_cpu(x: Subject) -> Iterator[Found]:
    types = {kernel.operator: kernel.types["cuda"] for kernel in TABLE}
    for site, report in x.sites:
        query = site.node.inputs[0]
        on_cuda = types.get(site.form)
        dtype = FLOATS.get(query.dtype) if query is not None and query.dtype is not None else None
        if on_cuda and dtype is not None and dtype not in on_cuda and x.made_for != "cpu":
            yield Found(
                f"{site.form} has no CUDA kernel for {dtype}: under CUDA it runs on the CPU, with copies each way",
                site.node,
                report.name,
            )


KERNELS = (
    Rule(
        "MP401",
        "attention-not-read",
        "warning",
        "Something that looks like attention was not understood.",
        "Its mask can't be compared, checked or told to a kernel, so it stays as it is, and slow.",
        "The message says where the reading ended. If the model is a common one, report it.",
        _not_read,
    ),
    Rule(
        "MP402",
        "attention-not-lowered",
        "note",
        "Attention is computed by single operators, without a kernel of its own.",
        "It writes a score for each pair of query and key to memory, several times.",
        "`maskport optimize`; where the message says that no kernel takes it, that reason has to go first.",
        _not_lowered,
    ),
    Rule(
        "MP403",
        "key-mask-rank",
        "error",
        "ai.onnx Attention gets a mask of one row for all queries.",
        "The operator broadcasts `[B, 1, 1, T]`, and the installed ONNX Runtime refuses it when it runs.",
        "Expand it to `[B, 1, S, T]`, or let `maskport optimize --repair key-mask-rank` do it.",
        _repairable("key-mask-rank", "the mask of {} has one row for all queries, which ONNX Runtime refuses to run"),
        "key-mask-rank",
    ),
    Rule(
        "MP404",
        "rotary-batch",
        "error",
        "RotaryEmbedding gets cos and sin of batch 1.",
        "PyTorch's exporter writes them so at opset 23; ONNX Runtime refuses them at every batch but 1.",
        "Expand them to the batch, or let `maskport optimize --repair rotary-batch` do it; `maskport export` does.",
        _repairable("rotary-batch", "cos and sin of {} have batch 1, which ONNX Runtime refuses at any other batch"),
        "rotary-batch",
    ),
    Rule(
        "MP405",
        "rms-norm-types",
        "error",
        "RMSNormalization gets a half-precision input and a float32 scale.",
        "Its specification allows that, and ONNX Runtime refuses to load it.",
        "Cast the input, or let `maskport optimize --repair rms-norm-types` do it; `maskport export` does.",
        _repairable("rms-norm-types", "input and scale of {} have two types, which ONNX Runtime doesn't load"),
        "rms-norm-types",
    ),
    Rule(
        "MP406",
        "unknown-operator",
        "error",
        "The installed ONNX Runtime doesn't know an operator, or one of its attributes.",
        "The file doesn't load. ONNX Runtime 1.31 has no windows of ai.onnx Attention at opset 25, for example.",
        "Export at an older opset, or update ONNX Runtime. Operators of your own: --ignore MP406.",
        _unknown,
    ),
    Rule(
        "MP407",
        "attention-on-cpu",
        "note",
        "An attention operator has no CUDA kernel for its element type.",
        "Under the CUDA provider it runs on the CPU without a word, with copies before and after.",
        "Convert to a type of the CUDA kernel (`maskport optimize --target cuda --dtype float16`), and see "
        "`maskport dryrun`. On the CPU it is no fault.",
        _on_the_cpu,
    ),
)
