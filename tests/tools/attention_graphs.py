"""Small graphs of attention layers, each with a causal window and a padding mask of its own."""

from __future__ import annotations

import onnx
import onnx.parser

HEAD = """
<ir_version: 10, opset_import: ["" : 18]>
attention (float[batch, seq, 8] x0, INPUTS) => (float[batch, seq, 8] xCOUNT)
<int64[4] split = {0, 0, 2, 4}, int64[3] merge = {0, 0, 8}, int64 zero = {0}, int64 one = {1}, int64[1] first = {1},
 int64[1] second = {2}, int64[1] start = {0}, int64[2] middle = {1, 2}, float least = {-3.4e38}>
{
"""
LAYER = """
    headsI = Reshape (xI, split)
    queryI = Transpose <perm = [0, 2, 1, 3]> (headsI)
    keyI = Transpose <perm = [0, 2, 3, 1]> (headsI)
    productI = MatMul (queryI, keyI)
    scaleI = Constant <value = float {SCALE}> ()
    scoresI = Mul (productI, scaleI)
    shapeI = Shape (xI)
    lengthI = Gather (shapeI, one)
    positionsI = Range (zero, lengthI, one)
    rowsI = Unsqueeze (positionsI, first)
    columnsI = Unsqueeze (positionsI, start)
    beforeI = LessOrEqual (columnsI, rowsI)
    reachI = Constant <value = int64 {REACH}> ()
    leastI = Sub (rowsI, reachI)
    nearI = GreaterOrEqual (columnsI, leastI)
    windowI = And (beforeI, nearI)
    realI = Cast <to = 9> (MASK)
    keysI = Unsqueeze (realI, middle)
    attendI = And (windowI, keysI)
    maskedI = Where (attendI, scoresI, least)
    weightsI = Softmax <axis = -1> (maskedI)
    mixedI = MatMul (weightsI, queryI)
    backI = Transpose <perm = [0, 2, 1, 3]> (mixedI)
    outI = Reshape (backI, merge)
"""
FAR = 10**6


def attention(
    *windows: int,
    padding: str = "attention_mask",
    scale: float = 0.5,
    scopes: str | None = "layers.{}.self_attn",
    replace: tuple[str, str] | None = None,
) -> onnx.ModelProto:
    """Return a model of one layer per window.

    Parameters
    ----------
    *windows : int
        How many keys before its own a query attends; `FAR` is all in any test.
    padding : str
        The name of the padding mask.
    scale : float
        The factor of the scores.
    scopes : str or None
        The name of a layer's module by its number, as PyTorch's exporter writes it; None writes none.
    replace : tuple of str
        What is written for another text in every layer.
    """
    text = HEAD.replace("INPUTS", f"int64[batch, seq] {padding}").replace("COUNT", str(len(windows)))
    for number, window in enumerate(windows):
        layer = LAYER.replace(*replace) if replace else LAYER
        layer += "    xNEXT = Add (xI, outI)\n"
        layer = layer.replace("REACH", str(window)).replace("SCALE", str(scale)).replace("MASK", padding)
        text += layer.replace("NEXT", str(number + 1)).replace("I ", f"{number} ").replace("I,", f"{number},")
        text = text.replace("I)", f"{number})")
    model = onnx.parser.parse_model(text + "}")
    for place, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{place}"
        if scopes is not None and node.op_type == "Softmax":
            scope = scopes.format(node.output[0].removeprefix("weights"))
            entry = node.metadata_props.add()
            entry.key, entry.value = "pkg.torch.onnx.name_scopes", f"['', '{scope}', 'softmax']"
    onnx.checker.check_model(model)
    return model
