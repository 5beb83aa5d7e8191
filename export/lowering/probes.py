"""Which operators and attributes the installed ONNX Runtime knows, found by loading a model of one node.

The operators of the table have CPU kernels, so that their schemas are found here also for CUDA.
"""

from __future__ import annotations

import functools

__all__ = ["PROBES", "refused_by_runtime"]

_SIGNATURE = "(float[1, 2, 8] q, float[1, 2, 8] k, float[1, 2, 8] v{more}) => (float[1, 2, 8] y)"
_ATTENTION = "Attention<q_num_heads = 1, kv_num_heads = 1, scale = 1.0{attributes}>(q, k, v{inputs})"
_MULTI_HEAD = "com.microsoft.MultiHeadAttention<num_heads = 1, scale = 1.0{attributes}>(q, k, v{inputs})"
_GROUP_QUERY = (
    "com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1, scale = 1.0{attributes}>(q, k, v, , , n, t)"
)
_LENGTHS = ", int32[1] n, int32 t"
# By operator, window and rest: the node, more inputs of the model, attributes and the node's inputs.
PROBES: dict[tuple[str, str, str], tuple[str, str, str, str]] = {
    ("ai.onnx.Attention", "none", "none"): (_ATTENTION, "", ", softcap = 1.0", ""),
    ("ai.onnx.Attention", "causal", "none"): (_ATTENTION, "", ", is_causal = 1", ""),
    ("ai.onnx.Attention", "none", "lengths"): (_ATTENTION, ", int64[1] n", "", ", , , , n"),
    ("ai.onnx.Attention", "any", "bool"): (_ATTENTION, ", bool[1, 1, 2, 2] m", "", ", m"),
    ("ai.onnx.Attention", "any", "bias"): (_ATTENTION, ", float[1, 1, 2, 2] m", "", ", m"),
    ("com.microsoft.MultiHeadAttention", "none", "none"): (_MULTI_HEAD, "", "", ""),
    ("com.microsoft.MultiHeadAttention", "causal", "none"): (_MULTI_HEAD, "", ", unidirectional = 1", ""),
    ("com.microsoft.MultiHeadAttention", "none", "key mask"): (
        _MULTI_HEAD,
        ", int32[1, 2] m",
        ", mask_filter_value = -1.0",
        ", , m",
    ),
    ("com.microsoft.MultiHeadAttention", "any", "bias"): (_MULTI_HEAD, ", float[1, 1, 2, 2] m", "", ", , , m"),
    ("com.microsoft.GroupQueryAttention", "causal", "none"): (_GROUP_QUERY, _LENGTHS, ", softcap = 1.0", ""),
    ("com.microsoft.GroupQueryAttention", "local", "none"): (_GROUP_QUERY, _LENGTHS, ", local_window_size = 1", ""),
}
NEWEST_OPSET = 24
FATAL_ONLY = 4


def refused_by_runtime(operator: str, window: str, rest: str) -> str | None:
    """Return what ONNX Runtime says against an operator with a window and a rest; None if it takes them.

    What has no probe of its own is made of what has. Where ONNX Runtime is not installed, the table is trusted.
    """
    probe = PROBES.get((operator, window, rest)) or PROBES.get((operator, window, "none"))
    return None if probe is None else _refused(probe)


@functools.cache
def _refused(probe: tuple[str, str, str, str]) -> str | None:
    try:
        import onnxruntime as ort
    except ModuleNotFoundError:
        return None
    from onnx import parser

    node, more, attributes, inputs = probe
    opset = NEWEST_OPSET
    body = node.format(attributes=attributes, inputs=inputs)
    text = (
        f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>\n'
        f"probe {_SIGNATURE.format(more=more)} {{ y = {body} }}"
    )
    options = ort.SessionOptions()
    options.log_severity_level = FATAL_ONLY
    try:
        model = parser.parse_model(text).SerializeToString()
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # Its errors have no common class but this.
        return f"the installed ONNX Runtime doesn't load it: {str(error).splitlines()[0][:400]}"
    return None
