"""The architectures of the zoo: tiny configurations of transformers, whose windows lengths 20 and 33 pass.

Weights are drawn wider than usual (0.3): at 0.02 attention is so even that a wrong position or score can't be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INIT = 0.3
SIZES = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": INIT,
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**SIZES, **TOKENS, "num_key_value_heads": 2, "head_dim": 8}
TRANSLATION = {
    "vocab_size": 100,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "init_std": INIT,
}
WINDOW = {"sliding_window": 8}
HALF_WINDOWED = {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]}


@dataclass(frozen=True)
class Architecture:
    """A configuration class of transformers, what it is given, and what its mask is like."""

    config: str
    arguments: dict[str, Any] = field(hash=False)
    mask: str


ZOO = {
    "bert": Architecture("BertConfig", SIZES, "padding"),
    "distilbert": Architecture(
        "DistilBertConfig",
        {
            "vocab_size": 100,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 64,
            "max_position_embeddings": 64,
            "initializer_range": INIT,
        },
        "padding",
    ),
    "electra": Architecture("ElectraConfig", {**SIZES, "embedding_size": 16}, "padding"),
    "xlmr": Architecture("XLMRobertaConfig", SIZES, "padding, positions from tokens"),
    "mpnet": Architecture("MPNetConfig", SIZES, "padding, relative bias"),
    "deberta": Architecture(
        "DebertaV2Config",
        {
            **SIZES,
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
        },
        "padding, relative scores",
    ),
    "modernbert": Architecture(
        "ModernBertConfig",
        {
            **SIZES,
            **TOKENS,
            "num_hidden_layers": 4,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "local_attention": 8,
            "global_attn_every_n_layers": 3,
        },
        "padding, window in two of three layers",
    ),
    "gpt2": Architecture(
        "GPT2Config",
        {
            "vocab_size": 100,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 64,
            "initializer_range": INIT,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        "causal",
    ),
    "llama": Architecture("LlamaConfig", GROUPED, "causal"),
    "mistral": Architecture("MistralConfig", {**GROUPED, **WINDOW}, "causal window"),
    "qwen2": Architecture("Qwen2Config", GROUPED, "causal"),
    "gemma2": Architecture("Gemma2Config", {**GROUPED, **HALF_WINDOWED}, "causal, every second a window; softcap"),
    "gemma3": Architecture("Gemma3TextConfig", {**GROUPED, **HALF_WINDOWED}, "causal, every second a window"),
    "bart": Architecture("BartConfig", TRANSLATION, "encoder padding, decoder causal, cross"),
    "marian": Architecture(
        "MarianConfig",
        {**TRANSLATION, "pad_token_id": 1, "eos_token_id": 0, "decoder_start_token_id": 1},
        "encoder padding, decoder causal, cross",
    ),
    "t5": Architecture(
        "T5Config",
        {
            "vocab_size": 100,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 16,
        },
        "encoder padding, decoder causal, cross; relative bias",
    ),
    "bloom": Architecture(
        "BloomConfig",
        {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": INIT, **TOKENS},
        "causal, ALiBi",
    ),
    "clip_text": Architecture(
        "CLIPTextConfig", {**SIZES, **TOKENS, "eos_token_id": 99, "initializer_factor": 5.0}, "causal"
    ),
}

# What is less usual.
BEYOND = {
    "gpt_oss": Architecture(
        "GptOssConfig",
        {**GROUPED, **HALF_WINDOWED, "num_local_experts": 4, "num_experts_per_tok": 2},
        "causal, every second a window; sinks; experts",
    ),
    "llama4": Architecture(
        "Llama4TextConfig",
        {
            **GROUPED,
            "intermediate_size_mlp": 64,
            "num_local_experts": 2,
            "attention_chunk_size": 8,
            "layer_types": ["chunked_attention", "full_attention"],
        },
        "causal, every second in chunks; experts",
    ),
    "longformer": Architecture(
        "LongformerConfig", {**SIZES, **TOKENS, "sep_token_id": 2, "attention_window": 8}, "window, global tokens"
    ),
}

# The default of PyTorch's exporter, and the first that has RotaryEmbedding and Attention.
OPSETS = (None, 23)
ARCHITECTURES = {**ZOO, **BEYOND}
# What is said of those that are not exported.
REFUSED = {
    "llama4": r"Complex numbers have no ONNX form\n.*modeling_llama4.py:\d+ in forward: ",
    "longformer": r"A branch on a tensor's values decides what is run; .*\n.*modeling_longformer.py:\d+ in ",
}
EXPORTED = [name for name in ARCHITECTURES if name not in REFUSED]
