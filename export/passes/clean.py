"""Fold what is constant, share what is computed twice, and remove what nothing uses."""

from __future__ import annotations

__all__ = ["clean"]

import onnx_ir as ir
from onnx_ir.passes import PassManager, common
from onnxscript.optimizer import FOLDED_FROM_KEY, fold_constants_ir

from ..tracing.quiet import collected

# Elements of a constant that may take the place of what computes it: ONNX Runtime folds the rest when it loads the
# file, which stays small.
FOLD_LIMIT = 8192
ROUNDS = 8


class _FoldConstantsPass(ir.passes.InPlacePass):
    """Onnxscript's folding, with limits that keep a file from growing."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        # Shapes are inferred before, for the whole graph; by node alone, each would lose the names of its dimensions.
        result = fold_constants_ir(
            model, onnx_shape_inference=False, input_size_limit=FOLD_LIMIT, output_size_limit=FOLD_LIMIT
        )
        for value in _values(model):
            value.metadata_props.pop(FOLDED_FROM_KEY, None)
        return ir.passes.PassResult(model, result.modified)


def clean(model: ir.Model) -> bool:
    """Clean a model in place, and say whether it changed.

    Names, types and order of the inputs and outputs stay, and so does the metadata of the model and of the nodes that
    stay. A length that the inputs decide stays one. Functions are expected to be inlined; operators of any domain are
    kept if something uses them.

    Parameters
    ----------
    model : onnx_ir.Model
        With its shapes inferred; where a shape is unknown, less is folded.

    Returns
    -------
    bool
        False if there was nothing to do; then the model is as it was.
    """
    passes = PassManager(
        [
            _FoldConstantsPass(),
            common.CommonSubexpressionEliminationPass(),
            common.DeduplicateInitializersPass(),
            common.RemoveUnusedNodesPass(),
            common.RemoveUnusedFunctionsPass(),
            common.RemoveUnusedOpsetsPass(),
        ],
        steps=ROUNDS,
        early_stop=True,
    )
    # They warn of what they leave alone, such as initializers that are graph inputs, too.
    with collected():
        return bool(passes(model).modified)


def _values(model: ir.Model) -> list[ir.Value]:
    return [
        *(value for graph in model.graphs() for value in graph.initializers.values()),
        *(value for node in model.graph.all_nodes() for value in node.outputs),
    ]
