"""ONNX Runtime's messages, without the source files and codes that only its authors can read."""

from __future__ import annotations

import re

NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : "  # code and category
    r"|Load model from .*? failed:|Error in execution: |Exception during (?:loading|initialization): "
    r"|/\S*onnxruntime_src/\S+:\d+ (?:.*?\) (?=\S))?(?:(?:const )?\[with .*?\] )?"  # source file and C++ signature
    r"|\b\w+\.(?:cc|h):\d+ (?:operator\(\) |\w+ )?"  # the same, short
)


def plain(error: BaseException) -> str:
    """Return the message of an error of ONNX Runtime as one line for people."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = NOISE.sub("", " ".join(lines)).strip()
    return text or type(error).__name__
