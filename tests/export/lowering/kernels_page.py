"""The tables of docs/kernels.md, from those of the code; `python -m tests.export.lowering.kernels_page` prints them."""

from __future__ import annotations

from collections.abc import Iterator

from maskport.export.lowering.kernels import KERNELS, Kernel
from maskport.export.lowering.lower import lower
from maskport.export.lowering.targets import Target

from .canonical_models import Case

TARGETS = {
    "CPU": Target.parse("cpu", "float32"),
    "CUDA float16": Target.parse("cuda", "float16"),
    "CUDA float32": Target.parse("cuda", "float32"),
}
MASKS = (
    "full",
    "causal",
    "padding(m)",
    "causal & padding(m)",
    "window(7, 0)",
    "window(7, 0) & padding(m)",
    "window(4, 4) & padding(m)",
    "prefix(n)",
    "causal & prefix(n)",
    "segments(s)",
    "chunked(8) & padding(m)",
    "dense(d)",
)


def kernel_rows() -> Iterator[str]:
    """Yield a row for each kernel."""
    for kernel in KERNELS:
        takes = ", ".join(sorted(kernel.takes)) or "-"
        needs = ", ".join(kernel.needs) or "-"
        yield f"| {kernel.name} | {_types(kernel, 'cpu')} | {_types(kernel, 'cuda')} | {takes} | {needs} |"


def _types(kernel: Kernel, provider: str) -> str:
    short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
    return " ".join(short[dtype] for dtype in kernel.types[provider]) or "all"


def mask_rows() -> Iterator[str]:
    """Yield a row for each mask: what carries it on the targets."""
    for mask in MASKS:
        yield f"| {mask} | {' | '.join(_carrier(mask, target) for target in TARGETS.values())} |"


def _carrier(mask: str, target: Target) -> str:
    (site,) = lower(Case(mask, kv_heads=2).model(), target, padding_rows="any")
    carried = site.why.split("; ")[-1].rpartition(": cost")[0]
    return f"{site.kernel.split('.')[-1]}: {carried.replace(mask, 'it')}"


if __name__ == "__main__":
    print("\n".join([*kernel_rows(), "", *mask_rows()]))
