"""The table of docs/validate.md, from a run: ``python -m tests.tools.mutants.table`` in the repository's folder."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

from maskport.export import export
from maskport.tools.builtin import BUILTINS
from maskport.tools.mutants import Mutant, SelfTest, self_test
from maskport.tools.mutants.mutations import MUTATIONS

from ...generated import write_between
from ...zoo.models import Zoo

PAGE = Path(__file__).resolve().parents[3] / "docs" / "validate.md"
BEGIN, END = "<!-- made by python -m tests.tools.mutants.table -->\n", "<!-- end -->\n"
REFERENCES = (
    "encoder",
    "encoder-windowed",
    "encoder-packed",
    "decoder-only",
    "decoder-only-windowed",
    "encoder-decoder",
)
ARCHITECTURES = ("bert", "gpt2", "mistral", "gemma2", "t5")
VERSIONS = ("torch", "transformers", "onnxruntime-gpu")
# What catches, and the letter that stands for it.
LETTERS = {"one_batch": "1", "parity": "P", "contracts": "C"}


def cell(mutant: Mutant | None) -> str:
    """Return what caught a mutant; empty if the model can't have it."""
    if mutant is None:
        return ""
    if mutant.survived:
        return "survived"
    found = "".join(letter for name, letter in LETTERS.items() if getattr(mutant, name))
    return found if mutant.caught else "="


def lines(results: dict[str, SelfTest]) -> list[str]:
    """Return the table: a line for each fault, a column for each model."""
    by_name = {model: {mutant.name: mutant for mutant in result.mutants} for model, result in results.items()}
    table = ["| fault | " + " | ".join(results) + " |", "|---" * (len(results) + 1) + "|"]
    for mutation in MUTATIONS:
        cells = [cell(found.get(mutation.name)) for found in by_name.values()]
        if any(cells):
            table.append(f"| {mutation.name} | " + " | ".join(cells) + " |")
    faults = [mutant for result in results.values() for mutant in result.mutants if mutant.equivalent is None]
    counts = {name: sum(bool(getattr(mutant, name)) for mutant in faults) for name in LETTERS}
    caught = sum(mutant.caught for mutant in faults)
    told = (
        f"Of {len(faults)} faults, one batch shows {counts['one_batch']} ({counts['one_batch'] / len(faults):.0%}), "
        f"parity {counts['parity']}, the contracts {counts['contracts']}, parity and contracts together {caught}."
    )
    return [*table, "", told]


def main() -> None:
    """Plant faults in the reference models and in the zoo, and write the table into the page."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in REFERENCES:
            module, inputs, shapes = BUILTINS[name].build()
            exported = export(module, inputs, dynamic_shapes=shapes)
            results[name] = self_test(exported.serialize())
            print(name, results[name].ok)
        zoo = Zoo(Path(folder))
        for name in ARCHITECTURES:
            results[name] = self_test(zoo(name).path)
            print(name, results[name].ok)
    made = "With " + ", ".join(f"{package} {version(package)}" for package in VERSIONS) + ":"
    table = "\n".join([made, "", *lines(results)])
    write_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
