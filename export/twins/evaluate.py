"""A model run node by node in Python, by onnx.reference with the twins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError
from onnx.reference.ops import aionnxml, load_op

from .attention import Attention
from .bias_gelu import BiasGelu
from .embed_layer_normalization import EmbedLayerNormalization
from .fast_gelu import FastGelu
from .fused_gemm import FusedGemm
from .fused_mat_mul import FusedMatMul
from .gather_elements import GatherElements
from .gelu import Gelu
from .group_query_attention import GroupQueryAttention
from .in_float32 import IN_FLOAT32
from .multi_head_attention import MultiHeadAttention
from .onnx_gelu import Gelu as OnnxGelu
from .packed_multi_head_attention import PackedMultiHeadAttention
from .quick_gelu import QuickGelu
from .remove_padding import RemovePadding
from .restore_padding import RestorePadding
from .rotary_embedding import RotaryEmbedding
from .simplified_layer_normalization import SimplifiedLayerNormalization
from .skip_layer_normalization import SkipLayerNormalization
from .skip_simplified_layer_normalization import SkipSimplifiedLayerNormalization
from .twin import Twin

__all__ = ["TWINS", "evaluate", "evaluator", "lacking"]

TWINS: tuple[type[Twin], ...] = (
    Attention,
    BiasGelu,
    EmbedLayerNormalization,
    FastGelu,
    FusedGemm,
    FusedMatMul,
    GatherElements,
    Gelu,
    GroupQueryAttention,
    MultiHeadAttention,
    OnnxGelu,
    PackedMultiHeadAttention,
    QuickGelu,
    RemovePadding,
    RestorePadding,
    RotaryEmbedding,
    SimplifiedLayerNormalization,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
)
DOMAIN = Twin.op_domain
_LOADERS = {"": load_op, "ai.onnx.ml": aionnxml.load_op}


class _Evaluator(ReferenceEvaluator):
    """onnx.reference's evaluator, which hands new operators on to subgraphs and not to functions."""

    def __init__(self, proto: Any, **kwargs: Any) -> None:
        super().__init__(proto, **{**kwargs, "new_ops": [*TWINS, *IN_FLOAT32]})

    def run(self, *args: Any, **kwargs: Any) -> Any:
        # A kernel says nothing of what becomes infinite or no number.
        with np.errstate(all="ignore"):
            return super().run(*args, **kwargs)


def evaluator(model: onnx.ModelProto | bytes | str | PathLike[str]) -> ReferenceEvaluator:
    """Return what runs a model node by node in Python, with the twins.

    Raises
    ------
    NotImplementedError
        If the model has an operator of :func:`lacking`.
    """
    model = _loaded(model)
    if all(entry.domain != DOMAIN for entry in model.opset_import):
        # ONNX Runtime knows its own operators without it.
        copied = onnx.ModelProto()
        copied.CopyFrom(model)
        copied.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        model = copied
    missing = lacking(model)
    if missing:
        raise NotImplementedError(f"neither onnx.reference nor a twin runs {', '.join(missing)}")
    return _Evaluator(model)


def evaluate(
    model: onnx.ModelProto | bytes | str | PathLike[str], feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Run a model in numpy and return its outputs by name: exact in what it means, slow, for tiny sizes.

    Parameters
    ----------
    model
        The model, its bytes, or its file.
    feeds
        Arrays by the names of the model's inputs; bfloat16 is that of ml_dtypes.

    Raises
    ------
    NotImplementedError
        If neither onnx.reference nor a twin has an operator.
    ValueError
        If an input is missing, or an operator is given what has no single meaning.

    Warns
    -----
    KernelsDisagree
        If a kernel of ONNX Runtime departs from the documented meaning, which is computed.
    """
    runner = evaluator(model)
    given = set(feeds).union(runner.rt_inits_)
    missing = [name for name in runner.input_names if name not in given]
    if missing:
        raise ValueError(f"expected the inputs {runner.input_names}, {missing} are missing")
    return dict(zip(runner.output_names, runner.run(None, dict(feeds)), strict=True))


def lacking(model: onnx.ModelProto | bytes | str | PathLike[str]) -> list[str]:
    """Return the operators, ``"domain.name"``, that neither onnx.reference nor a twin runs, sorted."""
    model = _loaded(model)
    known = {(twin.op_domain, twin.__name__) for twin in TWINS}
    known |= {(function.domain, function.name) for function in model.functions}
    found = set()
    for versions, nodes in [
        (model.opset_import, model.graph.node),
        *((function.opset_import, function.node) for function in model.functions),
    ]:
        opsets = {entry.domain: entry.version for entry in versions}
        for node in _all_nodes(nodes):
            if (node.domain, node.op_type) not in known and not _in_reference(node, opsets.get(node.domain)):
                found.add(f"{node.domain or 'ai.onnx'}.{node.op_type}")
    return sorted(found)


def _in_reference(node: onnx.NodeProto, version: int | None) -> bool:
    loader = _LOADERS.get(node.domain)
    if loader is None or version is None:
        return False
    keywords = {"evaluator_cls": _Evaluator} if node.domain == "" else {}
    try:
        loader(node.domain, node.op_type, version, **keywords)
    except RuntimeContextError:
        # A function whose body depends on the types, made when it runs.
        return True
    except NotImplementedError:
        return False
    return True


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in [attribute.g, *attribute.graphs]:
                yield from _all_nodes(graph.node)


def _loaded(model: onnx.ModelProto | bytes | str | PathLike[str]) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
