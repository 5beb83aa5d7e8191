"""Real text that every machine has: paragraphs of the documentation of the installed packages."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from typing import Any

import numpy as np

from .subjects import minilm_folder

# Shorter ones are headings, badges and links; prose has three words in a row.
SHORTEST = 40
PROSE = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]")


def paragraphs() -> list[str]:
    """Return the distinct paragraphs of prose in the installed packages' descriptions, by package name."""
    found: dict[str, None] = {}
    for package in sorted(distributions(), key=lambda package: package.name.lower()):
        text = str(package.metadata.json.get("description", ""))
        for paragraph in re.split(r"\n\s*\n", text):
            line = " ".join(paragraph.split())
            if len(line) >= SHORTEST and PROSE.search(line):
                found.setdefault(line)
    return list(found)


def text_batches(count: int, batch: int, longest: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Return `count` batches of paragraphs in random order, tokenized and padded as the package's tokenizer does.

    Returns
    -------
    list of dict
        int64 arrays [batch, length] by name; each batch is as long as its longest paragraph, at most `longest`.
    """
    tokenizer = _tokenizer()
    texts = paragraphs()
    np.random.default_rng(seed).shuffle(texts)
    batches = []
    for start in range(0, count * batch, batch):
        encoded = tokenizer(
            texts[start : start + batch], padding=True, truncation=True, max_length=longest, return_tensors="np"
        )
        batches.append({name: np.asarray(array, np.int64) for name, array in encoded.items()})
    return batches


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(minilm_folder(), local_files_only=True)
