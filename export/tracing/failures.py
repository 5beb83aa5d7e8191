"""A failure of PyTorch's exporter, told in a few lines; what PyTorch itself says of it goes to a file."""

from __future__ import annotations

import linecache
import re
import sysconfig
import tempfile
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from .traces import module_packages

PACKAGE = Path(__file__).resolve().parents[1]
LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib"))


class Hint(NamedTuple):
    """What a failure means and what to write instead; known by PyTorch's words and, if given, the module's line."""

    error: str
    line: str
    meaning: str
    instead: str


# The first that fits is told. {0} is what the first group of `error` has found.
HINTS = (
    Hint(
        r"scaled_dot_product_attention.*'is_causal' must be bool",
        "",
        "is_causal depends on a size, and the file would have one answer for all sizes",
        "Pass is_causal=True or False, or a mask: attn_mask=torch.ones(q, k, dtype=torch.bool).tril().",
    ),
    Hint(
        r"static shape of (\d+) for dimension (\S+)\.",
        "",
        "The module works for size {0} of {1} only: a number, buffer or cache of that size meets the input",
        "Take the size from the input where it is used, as in mask[:x.shape[1], :x.shape[1]]; or leave the axis out of "
        "dynamic_shapes.",
    ),
    Hint(
        r"data-dependent|unhinted|GuardOnDataDependent",
        r"\.item\(\)|\bint\(|\bfloat\(|\.tolist\(\)|\brange\(|^for\b",
        "A number is read from a tensor's values and decides what is run; the file can't know it",
        "Keep it a tensor: torch.arange(n) < lengths[:, None] instead of a loop or slice up to lengths[b].item().",
    ),
    Hint(
        r"data-dependent|unhinted|GuardOnDataDependent",
        r"TransformerEncoder|TransformerDecoder|\bencoder\(|\bdecoder\(|\.layers?\(",
        "A branch on a tensor's values decides what is run; torch.nn's stacks look whether a mask is causal",
        "Pass is_causal=False beside the mask. In code of yours, apply the mask on every path.",
    ),
    Hint(
        r"data-dependent|unhinted|GuardOnDataDependent",
        "",
        "A branch on a tensor's values decides what is run; the file can't know them",
        "Apply the mask on every path (scores.masked_fill(~mask, ...)), or choose by torch.where(condition, a, b).",
    ),
    Hint(
        r"numpy|FakeTensor.*(?:data|storage)|\.numpy\(\)",
        "",
        "Values of a tensor are handed to numpy, where PyTorch can't follow",
        "Write it with torch: torch.tril for np.tril, torch.where for np.where.",
    ),
    Hint(
        r"only 4D query, key, and value",
        "",
        "scaled_dot_product_attention has an ONNX form for [batch, heads, seq, width] only",
        "Give it a head axis: q[:, None] for one head.",
    ),
    Hint(
        r"complex-valued",
        "",
        "Complex numbers have no ONNX form",
        "Turn queries and keys by cos and sin instead of torch.polar and torch.view_as_complex.",
    ),
    Hint(
        r"No ONNX function|ConversionError|not (?:registered|supported)",
        "",
        "An operator has no ONNX form as it is used here, at this opset",
        "Try a higher opset_version, or write it with simpler operators.",
    ),
)


def explain(module: nn.Module, error: BaseException) -> str:
    """Tell a failure in at most ten lines: what happened, at which line of the module, what to write instead."""
    dump = _write("".join(traceback.format_exception(error)))
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    said = "\n".join(str(link) for link in reversed(chain))
    traces = "\n".join([said, *filter(None, map(_node_trace, chain))])
    packages = module_packages(module)
    frame = (
        _users_frame(chain[-1]) or _frame_in(traces) or _users_frame(chain[-1], packages) or _frame_in(traces, packages)
    )
    line = frame[3] if frame else ""
    root = chain[-1]
    lines = [f"{type(module).__name__} can't be exported"]
    hint, found = _hint(f"{type(root).__name__}: {said}", line)
    if hint is not None and found is not None:
        lines += [hint.meaning.format(*found.groups())]
    if frame:
        lines.append(f"at {frame[0]}:{frame[1]} in {frame[2]}: {line}")
    if hint is not None:
        lines.append(hint.instead)
    lines.append(f"PyTorch says: {type(root).__name__}: {_said_by(root)}")
    lines.append(f"All of it: {dump}")
    return "\n  ".join(lines)


def _hint(said: str, line: str) -> tuple[Hint | None, re.Match[str] | None]:
    for hint in HINTS:
        found = re.search(hint.error, said)
        if found and re.search(hint.line, line):
            return hint, found
    return None, None


def _said_by(error: BaseException) -> str:
    """Return the line of a message that says most: a listed finding, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return next((line.removeprefix("- ") for line in lines if line.startswith("- ")), lines[0])[:300]


def _users_frame(error: BaseException, packages: Collection[str] = ()) -> tuple[str, int, str, str] | None:
    """Return file, line number, function and code of the innermost frame that is the user's or of `packages`."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, packages)]
    if not frames:
        return None
    last = frames[-1]
    return last.filename, last.lineno or 0, last.name, last.line or ""


def _node_trace(error: BaseException) -> str | None:
    """Return the trace of the node that PyTorch was translating: its text doesn't name the line."""
    nodes = [frame.f_locals.get("node") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((node.stack_trace for node in reversed(nodes) if isinstance(node, torch.fx.Node)), None)


def _frame_in(said: str, packages: Collection[str] = ()) -> tuple[str, int, str, str] | None:
    """Return the last of the frames that PyTorch's own text names and that are the user's or of `packages`."""
    frames = [f for f in re.findall(r'File "([^"]+)", line (\d+), in (\S+)', said) if _is_users(f[0], packages)]
    if not frames:
        return None
    path, number, name = frames[-1]
    return path, int(number), name, linecache.getline(path, int(number)).strip()


def _is_users(filename: str, packages: Collection[str] = ()) -> bool:
    path = Path(filename)
    roots = [root for root in LIBRARIES if path.is_relative_to(root)]
    in_packages = any(path.relative_to(root).parts[0] in packages for root in roots)
    return path.is_file() and not path.is_relative_to(PACKAGE) and (not roots or in_packages)


def _write(text: str) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="maskport-export-", suffix=".log", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    return file.name
