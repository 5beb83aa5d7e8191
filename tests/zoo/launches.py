"""What optimizing for CUDA changes on the zoo, as the table of docs/dryrun.md: ``python -m tests.zoo.launches``."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from maskport.export import ExportError, export
from maskport.export.hf import load
from maskport.export.optimizer import optimize
from maskport.export.tracing.quiet import collected
from maskport.tools.dryrun import Trace, dryrun

from ..generated import write_between
from ..tools.dryrun.before_after import DTYPE, SM, TARGET, attention, host_copies, inputs_of, mask_kernels, reference
from .configs import ARCHITECTURES, EXPORTED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dryrun.md"
BEGIN, END = "<!-- made by python -m tests.zoo.launches -->\n", "<!-- end -->\n"
COLUMNS = [
    *("model", "launches a layer", "without packing", "launches", "attention", "mask kernels"),
    *("host copies between nodes", "CUDA graph"),
]
# How deep the two models are whose difference is told: as many layers more as their kinds repeat.
DEPTHS, OTHER_DEPTHS = (2, 4), {"bert-base": (2, 12), "modernbert": (4, 7)}
DEPTH_NAMES = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")
BASE = {
    "bert-base": (
        "bert",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "initializer_range": 0.02},
    ),
}
# Seconds for one dry run, also on a machine that does other things.
PATIENCE = 600
# What is said of a model whose weights, drawn wide, are too large for its export in half precision.
FULL = ", exported in float32"
REFERENCE = ("encoder", "decoder")
MODELS = [*BASE, *(f"reference {name}" for name in REFERENCE), *EXPORTED]


@dataclass(frozen=True)
class Forms:
    """One depth of a model: as exported, optimized, and optimized without packing."""

    before: Trace
    after: Trace
    padded: Trace


@dataclass(frozen=True)
class Launches:
    """A model at two depths."""

    shallow: Forms
    deep: Forms
    layers: int

    def a_layer(self, form: str) -> float:
        """Return the launches of one layer more, on average."""
        shallow, deep = (getattr(forms, form).launches for forms in (self.shallow, self.deep))
        return (deep - shallow) / self.layers

    def cells(self) -> list[str]:
        """Return the cells of its line."""
        both = (self.shallow.before, self.shallow.after)
        pairs = (
            [f"{self.a_layer(form):g}" for form in ("before", "after")],
            [str(trace.launches) for trace in both],
            [attention(trace) for trace in both],
            [str(mask_kernels(trace)) for trace in both],
            [str(host_copies(trace)) for trace in both],
            ["yes" if trace.cuda_graph.capturable else "no" for trace in both],
        )
        first, *others = (" → ".join(pair) for pair in pairs)
        return [first, f"{self.a_layer('padded'):g}", *others]


def measure(name: str, folder: Path, dtype: str = DTYPE) -> Launches:
    """Export a model at two depths, optimize both, and run all of them dry."""
    depths = OTHER_DEPTHS.get(name, DEPTHS)
    shallow, deep = (_forms(_exported(name, depth, folder, dtype)) for depth in depths)
    return Launches(shallow, deep, depths[1] - depths[0])


def _exported(name: str, depth: int, folder: Path, dtype: str) -> Path:
    if name.startswith("reference "):
        return reference(folder, name.removeprefix("reference "), depth)
    known, changes = BASE.get(name, (name, {}))
    architecture = ARCHITECTURES[known]
    arguments = _deep(architecture.arguments | changes, depth)
    path = folder / f"{name}-{depth}.onnx"
    with collected():
        config = folder / f"{name}-{depth}"
        getattr(transformers, architecture.config)(**arguments).save_pretrained(config)
        loaded = load(config)
        export(loaded.module, loaded.example_inputs, path, dynamic_shapes=loaded.dynamic_shapes, dtype=dtype)
    return path


def _deep(arguments: Mapping[str, Any], depth: int) -> dict[str, Any]:
    changed = copy.deepcopy(dict(arguments))
    changed |= {key: depth for key in DEPTH_NAMES if key in changed}
    if "layer_types" in changed:
        kinds = changed["layer_types"]
        changed["layer_types"] = [kinds[layer % len(kinds)] for layer in range(depth)]
    return changed


def _forms(path: Path) -> Forms:
    traces = []
    with collected():
        given = inputs_of(path)
        for packing in (None, "auto", "none"):
            file = path
            if packing is not None:
                file = path.with_name(f"{packing}-{path.name}")
                optimize(path, file, target=TARGET, dtype=DTYPE, padding_rows="zero", packing=packing)
            traces.append(dryrun(file, SM, given, seconds=PATIENCE))
    return Forms(*traces)


def lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---" * len(COLUMNS) + "|"
    for name in MODELS:
        yield "| " + " | ".join(_row(name)) + " |"


def _row(name: str) -> list[str]:
    for label, dtype in ((name, DTYPE), (name + FULL, "float32")):
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ExportError):
            return [label, *measure(name, Path(folder), dtype).cells()]
    return [name, "no export", *[""] * (len(COLUMNS) - 2)]


def main() -> None:
    """Measure, and write the table into the page."""
    made = []
    for line in lines():
        print(line, flush=True)
        made.append(line)
    write_between(PAGE, BEGIN, END, "\n".join(made))


if __name__ == "__main__":
    main()
