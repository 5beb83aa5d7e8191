"""The table of what is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import ToolError

# Where a candidate begins: the module, our export of it at the exporter's default opset and at 23, or a checkpoint.
MODULE, MODEL, MODEL_23, CHECKPOINT = "module", "model.onnx", "model-23.onnx", "checkpoint"
# Of the summary: the best of each group is what Maskport is held against.
EAGER, PADDED, ROWS, OTHER, OURS = "PyTorch", "padded ONNX Runtime", "ONNX Runtime row by row", "others", "Maskport"

# Ends the name of a candidate that runs row by row.
ROW_BY_ROW = ", rows"
DEFAULT: Mapping[str, str] = {}
# OpenMP's threads wait in a loop for each other, which on a busy machine costs more than to sleep.
TORCH = (DEFAULT, {"OMP_WAIT_POLICY": "PASSIVE"})
# CTranslate2 takes oneDNN and AVX2 on a CPU that isn't Intel's unless it is told otherwise.
CTRANSLATE2 = (
    DEFAULT,
    {"CT2_FORCE_CPU_ISA": "AVX512"},
    {"CT2_USE_MKL": "1"},
    {"CT2_USE_MKL": "1", "CT2_FORCE_CPU_ISA": "AVX512"},
)


@dataclass(frozen=True)
class Candidate:
    """One entry.

    Attributes
    ----------
    name
        In the tables.
    group
        Which of the summary's lines it belongs to.
    engine
        What runs it, by its name in :data:`.engines.ENGINES`.
    source
        What it begins with; the path of a file stands for itself.
    make
        What makes its file from `source`, by its name in :data:`.prepare.MAKERS`; None takes it as it is.
    rows
        Whether the rows run one by one, without their padding.
    package
        What must be installed.
    settings
        Variables of its process's environment: the fastest entry is taken, and told.
    opt_in
        Whether it takes so long to make that it runs only when it is named.
    """

    name: str
    group: str
    engine: str
    source: str
    make: str | None = None
    rows: bool = False
    package: str | None = None
    settings: Sequence[Mapping[str, str]] = field(default=(DEFAULT,), hash=False)
    opt_in: bool = False


_PADDED = (
    Candidate("eager", EAGER, "torch", MODULE, settings=TORCH),
    Candidate("torch.compile", EAGER, "compiled", MODULE, settings=TORCH, opt_in=True),
    Candidate("ort", PADDED, "onnxruntime", MODEL),
    Candidate("ort opset 23", PADDED, "onnxruntime", MODEL_23),
    Candidate("optimize_model", PADDED, "onnxruntime", MODEL, "optimize_model"),
    Candidate("optimize_for_ort", PADDED, "onnxruntime", MODEL, "optimize_for_ort"),
    Candidate("openvino", OTHER, "openvino", MODEL, package="openvino"),
)
CANDIDATES = (
    *_PADDED,
    *(
        replace(c, name=f"{c.name}{ROW_BY_ROW}", group=ROWS if c.group == PADDED else c.group, rows=True)
        for c in _PADDED
        if not c.opt_in
    ),
    Candidate(
        "ctranslate2", OTHER, "ctranslate2", CHECKPOINT, "ctranslate2", package="ctranslate2", settings=CTRANSLATE2
    ),
    Candidate("maskport", OURS, "onnxruntime", MODEL, "maskport"),
)


def chosen(names: Sequence[str], against: Sequence[Path]) -> list[Candidate]:
    """Return the candidates of these names (all but those that are opt-in, if none is given), and the files' own.

    Raises
    ------
    ToolError
        If a name is none of the table's, or two files have one name.
    """
    known = {candidate.name: candidate for candidate in CANDIDATES}
    if unknown := [name for name in names if name not in known]:
        raise ToolError(f"there is no candidate {unknown[0]!r}; there are {', '.join(known)}")
    found = [c for c in CANDIDATES if (c.name in names if names else not c.opt_in)]
    for path in against:
        if not path.is_file():
            raise ToolError(f"--against names {path}, which is no file")
        found.append(Candidate(path.name, PADDED, "onnxruntime", str(path.absolute())))
    doubles = {c.name for c in found if [other.name for other in found].count(c.name) > 1}
    if doubles:
        raise ToolError(f"two files are called {doubles.pop()}; give them different names")
    return found
