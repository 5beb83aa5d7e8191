"""hf:FOLDER: a model with named inputs from a checkpoint or a lone config.json, or one plain line."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers
from maskport.export import ExportError, export
from maskport.export.hf import BATCH, LENGTHS, load

TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
BERT = {"model_type": "bert", **TINY}
LLAMA = {"model_type": "llama", **TINY, "num_key_value_heads": 1, "architectures": ["LlamaForCausalLM"]}
T5 = {"model_type": "t5", "vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}


def written(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "names", "outputs"),
    [
        (BERT, ["input_ids", "attention_mask", "token_type_ids"], ["last_hidden_state", "pooler_output"]),
        ({**BERT, "type_vocab_size": 1}, ["input_ids", "attention_mask"], ["last_hidden_state", "pooler_output"]),
        (LLAMA, ["input_ids", "attention_mask"], ["logits"]),
        (
            {**T5, "architectures": ["T5ForConditionalGeneration"]},
            ["input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"],
            ["logits", "encoder_last_hidden_state"],
        ),
        ({**T5, "architectures": ["T5EncoderModel"]}, ["input_ids", "attention_mask"], ["last_hidden_state"]),
    ],
    ids=["bert", "bert without types", "llama with head", "t5 with head", "t5 encoder"],
)
def test_inputs_and_outputs(tmp_path: Path, config: dict[str, Any], names: list[str], outputs: list[str]) -> None:
    module, inputs, shapes = load(written(tmp_path, config))
    assert list(inputs) == list(shapes) == names
    for name, value in inputs.items():
        prefix = "decoder_" if name.startswith("decoder_") else ""
        assert value.dtype == torch.int64
        assert value.shape == (BATCH, LENGTHS[prefix])
        assert shapes[name] == {0: "batch", 1: f"{prefix}seq"}
    assert not (inputs["input_ids"] == config.get("pad_token_id", 0)).any()
    # No cache, although the configurations of decoders ask for one.
    assert list(module(**inputs)) == outputs
    assert not any(part.training for part in module.modules())


def test_a_lone_configuration_has_the_same_weights_each_time_and_leaves_the_generator(tmp_path: Path) -> None:
    written(tmp_path, BERT)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = load(tmp_path)
    assert torch.rand(1) == expected
    two = load(tmp_path)
    assert all(map(torch.equal, one.module.state_dict().values(), two.module.state_dict().values()))
    assert all(map(torch.equal, one.example_inputs.values(), two.example_inputs.values()))


def test_a_checkpoint_is_loaded_in_float32(tmp_path: Path) -> None:
    torch.manual_seed(7)
    saved = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True)).bfloat16()
    saved.save_pretrained(tmp_path)
    module = load(tmp_path).module
    assert type(module) is transformers.LlamaForCausalLM
    assert {value.dtype for value in module.parameters()} == {torch.float32}
    for name, value in saved.named_parameters():
        assert torch.equal(module.get_parameter(name), value.float())


def test_the_export_of_a_folder_runs(tmp_path: Path) -> None:
    module, inputs, shapes = load(written(tmp_path, LLAMA))
    exported = export(module, inputs, dynamic_shapes=shapes, opset_version=23)
    assert exported.repairs == ("rotary-batch",)
    feeds = {name: value[:2].numpy() for name, value in inputs.items()}
    logits = ort.InferenceSession(exported.serialize()).run(None, feeds)[0]
    with torch.no_grad():
        np.testing.assert_allclose(logits, module(**inputs).logits[:2], atol=1e-5)


def test_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    load(written(tmp_path, BERT))
    with pytest.raises(ExportError, match="no folder"):
        load("google-bert/bert-base-uncased")
    assert offline == huggingface_hub.constants.HF_HUB_OFFLINE


def no_folder(folder: Path) -> Path:
    return folder / "missing"


def a_file(folder: Path) -> Path:
    return written(folder, BERT) / "config.json"


def text(content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "config.json").write_text(content)
        return folder

    return make


def configured(**changes: object) -> Callable[[Path], Path]:
    return text(json.dumps({**BERT, **changes}))


def without_a_head(folder: Path) -> Path:
    transformers.BertModel(transformers.BertConfig(**TINY)).save_pretrained(folder)
    return written(folder, {**BERT, "architectures": ["BertForSequenceClassification"]})


def of_another_size(folder: Path) -> Path:
    transformers.BertModel(transformers.BertConfig(**TINY)).save_pretrained(folder)
    return written(folder, {**BERT, "hidden_size": 8})


def corrupt(folder: Path) -> Path:
    (folder / "model.safetensors").write_bytes(b"nothing")
    return written(folder, BERT)


VISION = {"model_type": "vit", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_folder, r"there is no folder '.*missing'; give one that holds a config.json"),
        (a_file, r"there is no folder '.*config.json'"),
        (lambda folder: folder, r"holds no config.json; give the folder of a transformers model"),
        (text("{"), r"config.json' is no JSON"),
        (text("[]"), r"config.json' holds a list; a configuration is an object"),
        (text("{}"), r"has no model_type; transformers can't tell what to build"),
        (configured(model_type="nothing"), r"transformers [\d.]+ doesn't know the model_type 'nothing'"),
        (configured(model_type=[]), r"doesn't know the model_type \[\]"),
        (
            configured(model_type="x", auto_map={"AutoConfig": "x.X"}),
            r"code of its own \(auto_map in config.json\), which is not run",
        ),
        (configured(quantization_config={}), r"has a quantization_config; give the model with its original weights"),
        (configured(hidden_size="many"), r"doesn't fit bert: |can't build BertModel"),
        (configured(hidden_size=15), r"can't build BertModel from .*: ValueError: The hidden size \(15\)"),
        (configured(architectures=["Nothing"]), r"transformers [\d.]+ has no model Nothing, as '.*' asks"),
        (configured(architectures=["BertConfig"]), r"transformers [\d.]+ has no model BertConfig"),
        (configured(architectures=[7]), r"transformers [\d.]+ has no model 7"),
        (
            configured(max_position_embeddings=4),
            r"BertModel doesn't run on input_ids, attention_mask, token_type",
        ),
        (text(json.dumps(VISION)), r"ViTModel takes pixel_values, no input_ids; hf: exports models of text"),
        (without_a_head, r"lacks 2 of the weights of BertForSequenceClassification, such as classifier.bias"),
        (of_another_size, r"can't build BertModel from"),
        (corrupt, r"can't build BertModel from .*: SafetensorError"),
    ],
)
def test_what_can_not_be_built_is_one_plain_line(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(ExportError, match=message) as caught:
        load(make(tmp_path))
    assert len(str(caught.value).splitlines()) == 1


def test_without_transformers_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ExportError, match=r"pip install 'maskport\[hf\]'"):
        load(tmp_path)
