"""A zoo model's file against its module: batches 1 to 4, lengths 1, 7, 20, 33, four kinds of padding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from maskport.export.cases.patterns import padding_patterns
from maskport.export.hf import Loaded

from .models import ZooModel

BATCHES = (1, 2, 3, 4)
# Of the encoder or the only stack, and of the decoder beside an encoder.
LENGTHS = {1: 7, 7: 20, 20: 33, 33: 1}
PATTERNS = ("ones", "right", "left", "holes")
# float32: what another order of the sums changes, 1e-6 a layer, with room; per unit of the largest value.
TOLERANCE = 2e-5
# CLIP pools the row of its end token, which has the largest number.
CLIP_END = 99


@dataclass(frozen=True)
class Measured:
    """What a comparison found.

    Attributes
    ----------
    cases
        How many were compared.
    worst
        Largest error on valid rows.
    failures
        The cases with a larger error than allowed, with it.
    nodes, opset
        Of the file.
    repairs
        Names of those that the export needed.
    """

    cases: int
    worst: float
    failures: dict[str, float]
    nodes: int
    opset: int
    repairs: list[str]


def measure(model: ZooModel) -> Measured:
    """Compare a model's file with its module; done once for all tests and workers."""

    def make(path: Path) -> None:
        errors = compare(model.path, model.loaded)
        # A comparison with NaN is false, so that NaN fails.
        failures = {name: value for name, value in errors.items() if not value <= TOLERANCE}
        file, worst = onnx.load(model.path), float(np.max([*errors.values()]))
        opset = next(entry.version for entry in file.opset_import if entry.domain == "")
        measured = Measured(len(errors), worst, failures, len(file.graph.node), opset, model.repairs)
        path.write_text(json.dumps(asdict(measured)))

    return Measured(**json.loads(model.made("measured.json", make).read_text()))


def compare(path: Path, loaded: Loaded) -> dict[str, float]:
    """Return the error of every case: the largest difference on valid rows, per unit of the largest value there."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    errors = {}
    for case, inputs in cases(loaded):
        with torch.no_grad():
            expected = loaded.module(**{name: torch.from_numpy(value) for name, value in inputs.items()})
        outputs = dict(zip(names, session.run(None, inputs), strict=True))
        rows = {name: valid_rows(name, inputs) for name in names}
        errors[case] = max(_error(outputs[name][rows[name]], expected[name].numpy()[rows[name]]) for name in names)
    return errors


def cases(loaded: Loaded) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield the inputs of all cases by name; a padding that looks like another at its size comes once."""
    rng = np.random.default_rng(0)
    for batch in BATCHES:
        for length, decoder_length in LENGTHS.items():
            masks = padding_patterns(batch, length, rng)
            decoder_masks = padding_patterns(batch, decoder_length, rng)
            for pattern in [name for name in PATTERNS if name in masks]:
                keep = {"": masks[pattern], "decoder_": decoder_masks.get(pattern, decoder_masks["ones"])}
                inputs = {name: _drawn(name, keep, rng) for name in loaded.example_inputs}
                if loaded.module.config.eos_token_id == CLIP_END:
                    last = length - 1 - keep[""][:, ::-1].argmax(axis=1)
                    inputs["input_ids"][np.arange(batch), last] = CLIP_END
                yield f"batch={batch},seq={length},mask={pattern}", inputs


def _drawn(name: str, keep: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    prefix = "decoder_" if name.startswith("decoder_") else ""
    if name.endswith("attention_mask"):
        return keep[prefix].astype(np.int64)
    # Begin, end and padding are below 3.
    low, high = (0, 2) if name == "token_type_ids" else (3, CLIP_END)
    return rng.integers(low, high, keep[prefix].shape)


def valid_rows(output: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Tell an output's rows of real tokens [B, S]; a pooled output has a row for each text [B]."""
    if output == "pooler_output":
        return np.ones(len(inputs["input_ids"]), bool)
    decoder = output == "last_hidden_state" and "decoder_attention_mask" in inputs
    return inputs["decoder_attention_mask" if decoder else "attention_mask"] != 0


def _error(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(actual - expected).max()) / max(1.0, float(np.abs(expected).max()))
