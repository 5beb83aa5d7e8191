"""Export the built-in models that the project's pyproject.toml lists: ``python -m tests.own_models``."""

from __future__ import annotations

from pathlib import Path

from maskport.export import export
from maskport.tools.project_settings import section
from maskport.tools.spec import load

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Export each model that is held to a built-in one, to the path at which it is listed."""
    for entry in section(ROOT, "models").values():
        source = load(entry["against"])
        path = ROOT / entry["path"]
        export(source.module, source.example_inputs, path, dynamic_shapes=source.dynamic_shapes)
        print("wrote", path.relative_to(ROOT))


if __name__ == "__main__":
    main()
