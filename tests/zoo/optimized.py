"""The table of docs/optimized.md, from a run: ``python -m tests.zoo.optimized`` in the folder of the repository."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
from maskport.export import optimize
from maskport.tools import diff

from ..generated import write_between
from .configs import EXPORTED, OPSETS
from .models import Zoo, ZooModel

PAGE = Path(__file__).resolve().parents[2] / "docs" / "optimized.md"
BEGIN, END = "<!-- made by python -m tests.zoo.optimized -->\n", "<!-- end -->\n"
COLUMNS = ["architecture", "opset", "mask", "sites", "source", "on the CPU", "on CUDA", "packed"]
# By name: what is asked for.
FORMS: dict[str, dict[str, Any]] = {
    "cpu any": {"target": "cpu", "padding_rows": "any"},
    "cpu zero": {"target": "cpu", "padding_rows": "zero"},
    "cpu keep": {"target": "cpu", "padding_rows": "keep"},
    "cuda": {"target": "cuda:sm80", "padding_rows": "zero", "dtype": "float16"},
}
# What is not converted to half precision, and why.
NOT_HALF = {"gpt_oss": "rounding chooses other experts, which the check refuses"}
ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedMultiHeadAttention")
# Of an operator's inputs those that are a mask or a bias.
MASKS = {
    "Attention": (3,),
    "MultiHeadAttention": (4, 5),
    "GroupQueryAttention": (10,),
    "PackedMultiHeadAttention": (3,),
}


@dataclass(frozen=True)
class Became:
    """What optimizing made of a model.

    Attributes
    ----------
    sites
        Per attention: name, mask, source_form, kernel, why, and whether a dense mask or bias is an input of it.
    checked
        What ran the result.
    changed_masks
        Whether `diff` tells a mask of the source and the file apart.
    notes
        What was left as it was.
    """

    sites: list[dict[str, Any]]
    checked: str
    changed_masks: bool
    notes: list[str]


def became(model: ZooModel, form: str) -> Became:
    """Optimize a model with its own check; done once for all tests and workers."""

    def make(path: Path) -> None:
        written = model.folder / f"{form.replace(' ', '-')}.onnx"
        options = FORMS[form] | ({"dtype": None} if model.name in NOT_HALF else {})
        result = optimize(model.path, written, **options)
        dense = dense_masks(result.model)
        sites = [
            {"name": s.name, "mask": s.mask, "source_form": s.source_form, "kernel": s.kernel, "why": s.why}
            | {"dense": s.name in dense}
            for s in result.sites
        ]
        changed = diff(model.path, written).changed
        path.write_text(json.dumps(asdict(Became(sites, result.checked, changed, list(result.notes)))))

    return Became(**json.loads(model.made(f"became-{form.replace(' ', '-')}.json", make).read_text()))


def dense_masks(model: ir.Model) -> set[str]:
    """Return the attention that is told of pairs of queries and keys by a tensor, bodies of operators included.

    Of the CPU's loop over rows, too: there the tensor is one row's.
    """
    found = set()
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type not in ATTENTION:
            continue
        for place in MASKS[node.op_type]:
            if place < len(node.inputs) and (value := node.inputs[place]) is not None:
                dims = list(value.shape) if value.shape is not None else [None, None]
                if len(dims) >= 2 and dims[-1] != 1 and dims[-2] != 1:
                    found.add(str(node.metadata_props.get("maskport.site")))
    return found


def rows(name: str, zoo: Zoo) -> Iterator[list[str]]:
    """Yield the lines of a model: opsets of which the same is told are one, and so is attention."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for opset in OPSETS:
        cpu, cuda = (became(zoo(name, opset), form) for form in ("cpu any", "cuda"))
        counted: dict[tuple[str, ...], int] = {}
        for one, other in zip(cpu.sites, cuda.sites, strict=True):
            packed = ["CPU"] * ("left out" in one["why"]) + ["CUDA"] * ("groups" in other["why"])
            told = (one["mask"], *map(_told, (one, other)), ", ".join(packed) or "–")
            key = (told[0], one["source_form"].split(".")[-1], *told[1:])
            counted[key] = counted.get(key, 0) + 1
        for (mask, source, *rest), number in counted.items():
            lines.setdefault((f"`{mask}`", str(number), source, *rest), []).append(str(opset or "default"))
    for cells, opsets in lines.items():
        yield [name, ", ".join(opsets), *cells]


def _told(site: dict[str, Any]) -> str:
    operator = site["kernel"].split(".")[-1]
    how = site["why"].rsplit(": cost", 1)[0].replace("padding is left out: ", "")
    return f"{operator}: {how}"


def _lines(zoo: Zoo) -> Iterator[str]:
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---" * len(COLUMNS) + "|"
    for name in EXPORTED:
        for cells in rows(name, zoo):
            print(*cells)
            yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """Optimize the zoo, and write its table into the page."""
    with tempfile.TemporaryDirectory() as folder:
        table = "\n".join(_lines(Zoo(Path(folder))))
    write_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
