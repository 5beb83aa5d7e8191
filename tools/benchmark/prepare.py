"""The files that the optimizers make. Run as a module: one file, by a process of its own."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from .protocol import answers, failure


def optimize_model(source: Path, target: Path) -> str:
    """ONNX Runtime's optimizer of transformers, as its command line runs it for BERT."""
    from onnxruntime.transformers.optimizer import optimize_model

    optimized = optimize_model(str(source), model_type="bert")
    optimized.save_model_to_file(str(target))
    return f"fused {_counts(optimized.get_fused_operator_statistics())}"


def optimize_for_ort(source: Path, target: Path) -> str:
    """onnxscript's rewriter for ONNX Runtime."""
    import onnx_ir as ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model, counts = optimize_for_ort(ir.load(source))
    ir.save(model, target)
    return f"fused {_counts(counts)}"


def maskport(source: Path, target: Path) -> str:
    """Our own optimizer; padding rows become zero."""
    from ...export import optimize

    made = optimize(source, target, target="cpu", padding_rows="zero")
    kernels = Counter(site.kernel for site in made.sites)
    return "; ".join([f"kernels {_counts(kernels)}", *made.notes])


def ctranslate2(source: Path, target: Path) -> str:
    """CTranslate2's converter of transformers checkpoints, in float32."""
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(source)).convert(str(target))
    return ""


MAKERS: dict[str, Callable[[Path, Path], str]] = {
    "optimize_model": optimize_model,
    "optimize_for_ort": optimize_for_ort,
    "maskport": maskport,
    "ctranslate2": ctranslate2,
}


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items() if count) or "nothing"


def main() -> None:
    """Make one file: ``MAKER SOURCE TARGET``; answer with the seconds that it took and what was told."""
    name, source, target = sys.argv[1:]
    with answers() as answer:
        try:
            start = time.perf_counter()
            told = MAKERS[name](Path(source), Path(target))
            answer(json.dumps({"seconds": time.perf_counter() - start, "told": told}))
        except Exception as error:
            answer(json.dumps(failure(error)))


if __name__ == "__main__":
    main()
