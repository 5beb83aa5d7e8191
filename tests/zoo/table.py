"""The table of docs/zoo.md, from a run: ``python -m tests.zoo.table`` in the folder of the repository."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from ..generated import write_between
from .configs import ARCHITECTURES, EXPORTED, OPSETS
from .measure import Measured, measure
from .models import Zoo

PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"
BEGIN, END = "<!-- made by python -m tests.zoo.table -->\n", "<!-- end -->\n"
COLUMNS = ["architecture", "mask", "opset", "verdict", "worst error", "cases", "nodes", "repairs"]
VERSIONS = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime-gpu")


def row(name: str, measured: Measured) -> list[str]:
    """Return the cells of a model's line."""
    return [
        name,
        ARCHITECTURES[name].mask,
        str(measured.opset),
        "right" if not measured.failures else f"wrong in {len(measured.failures)}",
        f"{measured.worst:.1e}",
        str(measured.cases),
        str(measured.nodes),
        ", ".join(measured.repairs) or "–",
    ]


def _lines(zoo: Zoo) -> Iterator[str]:
    yield "With " + ", ".join(f"{package} {version(package)}" for package in VERSIONS) + ":\n"
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---" * len(COLUMNS) + "|"
    for name in EXPORTED:
        for opset in OPSETS:
            cells = row(name, measure(zoo(name, opset)))
            print(*cells)
            yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure the zoo, and write its table into the page."""
    with tempfile.TemporaryDirectory() as folder:
        table = "\n".join(_lines(Zoo(Path(folder))))
    write_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
