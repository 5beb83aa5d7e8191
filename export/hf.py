"""A transformers model from a local folder, ready for export: ``hf:FOLDER``."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..models.masks import Causal, KeyPadding
from .errors import ExportError
from .tracing.quiet import collected

if TYPE_CHECKING:
    import torch
    from torch import nn

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
BATCH = 3
# Where it is known and the check needs it: the models that pool a row which left padding can leave without a key.
MASKS = dict.fromkeys(("CLIPTextModel", "CLIPTextModelWithProjection"), Causal() & KeyPadding("attention_mask"))
# Of the tokens by the prefix of the input's name: coprime, and unlike the sizes that configurations have.
LENGTHS = {"": 7, "decoder_": 5}


class Loaded(NamedTuple):
    """What :func:`load` made, in the order of :func:`.export`'s parameters.

    Attributes
    ----------
    module
        The model in float32 and evaluation mode, without cache; it returns its tensors by name.
    example_inputs
        int64 tensors [batch, length] by name: ``input_ids``, ``attention_mask``, ``token_type_ids`` where the model
        tells more than one type, and the decoder's own.
    dynamic_shapes
        Batch and length of every input; the decoder's length is another.
    """

    module: nn.Module
    example_inputs: dict[str, torch.Tensor]
    dynamic_shapes: dict[str, dict[int, str]]


def load(folder: str | os.PathLike[str]) -> Loaded:
    """Build the transformers model of a local folder; nothing is downloaded, and no code of the folder is run.

    Parameters
    ----------
    folder
        Holds ``config.json``. Without weights beside it, they are random, and the same each time. The class is the
        first of the configuration's ``architectures``, else the model without a head.

    Raises
    ------
    ExportError
        If transformers is not installed, the folder holds no model that it can build, or the model takes no text.
    """
    folder = Path(folder)
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ExportError("hf:FOLDER needs transformers; pip install 'maskport[hf]'") from error
    import torch

    content = _content(folder)
    with collected(), _offline(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            raise ExportError(_unknown(folder, content, transformers.__version__, error)) from error
        model_class = _class_of(config, folder, transformers)
        # Before the model is built, which copies it for its parts.
        config.use_cache, config.return_dict = False, True
        module = _build(model_class, config, folder)
        # Experts by loops can't be traced, and grouped products have no ONNX form.
        module.set_experts_implementation("batched_mm")
        if model_class.__name__ in MASKS:
            vars(module)["maskport_mask"] = MASKS[model_class.__name__]
        inputs = _example_inputs(module)
        _try(module, inputs)
    shapes = {name: {0: "batch", 1: f"{_prefix(name)}seq"} for name in inputs}
    return Loaded(module, inputs, shapes)


def _content(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not folder.is_dir():
        raise ExportError(f"there is no folder {str(folder)!r}; give one that holds a config.json")
    if not path.is_file():
        raise ExportError(f"{str(folder)!r} holds no config.json; give the folder of a transformers model")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExportError(f"{str(path)!r} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ExportError(f"{str(path)!r} holds a {type(content).__name__}; a configuration is an object")
    if "quantization_config" in content:
        raise ExportError(f"{str(path)!r} has a quantization_config; give the model with its original weights")
    return content


def _unknown(folder: Path, content: dict[str, Any], version: str, error: Exception) -> str:
    model_type = content.get("model_type")
    if "auto_map" in content:
        return f"{str(folder)!r} brings code of its own (auto_map in config.json), which is not run"
    if model_type is None:
        return f"the config.json of {str(folder)!r} has no model_type; transformers can't tell what to build"
    from transformers import CONFIG_MAPPING

    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        return f"transformers {version} doesn't know the model_type {model_type!r} of {str(folder)!r}"
    return f"the config.json of {str(folder)!r} doesn't fit {model_type}: {_first_line(error)}"


def _class_of(config: Any, folder: Path, transformers: Any) -> Any:
    architectures = config.architectures or ()
    for name in architectures[:1]:
        model_class = getattr(transformers, str(name), None)
        if not isinstance(model_class, type) or not issubclass(model_class, transformers.PreTrainedModel):
            raise ExportError(f"transformers {transformers.__version__} has no model {name}, as {str(folder)!r} asks")
        return model_class
    try:
        return transformers.MODEL_MAPPING[type(config)]
    except KeyError as error:
        raise ExportError(
            f"transformers has no model for the model_type {config.model_type!r} alone; name one in the "
            f"architectures of {str(folder / 'config.json')!r}"
        ) from error


def _build(model_class: Any, config: Any, folder: Path) -> Any:
    import torch

    try:
        if not any((folder / name).is_file() for name in WEIGHTS):
            return model_class(config).eval()
        module, told = model_class.from_pretrained(
            folder, config=config, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except Exception as error:
        raise ExportError(
            f"transformers can't build {model_class.__name__} from {str(folder)!r}: {_first_line(error)}"
        ) from error
    if missing := sorted(told["missing_keys"]):
        raise ExportError(
            f"the checkpoint in {str(folder)!r} lacks {len(missing)} of the weights of {model_class.__name__}, such "
            f"as {missing[0]}; name the class that it was saved from in the architectures of its config.json"
        )
    return module.eval()


def _prefix(name: str) -> str:
    return "decoder_" if name.startswith("decoder_") else ""


def _example_inputs(module: Any) -> dict[str, torch.Tensor]:
    """Draw tokens and whole masks for what the model's ``forward`` takes."""
    import torch

    config, parameters = module.config.get_text_config(), inspect.signature(module.forward).parameters
    if "input_ids" not in parameters:
        raise ExportError(
            f"{type(module).__name__} takes {module.main_input_name}, no input_ids; hf: exports models of text"
        )
    # Some models take positions from the tokens that are no padding.
    vocabulary = min(config.vocab_size, getattr(config, "decoder_vocab_size", None) or config.vocab_size)
    ids = torch.tensor([i for i in range(vocabulary) if i != config.pad_token_id])
    inputs = {}
    for prefix, length in LENGTHS.items():
        if f"{prefix}input_ids" in parameters:
            inputs[f"{prefix}input_ids"] = ids[torch.randint(len(ids), (BATCH, length))]
        if f"{prefix}attention_mask" in parameters:
            inputs[f"{prefix}attention_mask"] = torch.ones(BATCH, length, dtype=torch.int64)
    types = getattr(config, "type_vocab_size", None) or 0
    if types > 1 and "token_type_ids" in parameters:
        inputs["token_type_ids"] = torch.randint(types, (BATCH, LENGTHS[""]))
    return inputs


def _try(module: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    try:
        module(**inputs)
    except Exception as error:
        raise ExportError(
            f"{type(module).__name__} doesn't run on {', '.join(inputs)}: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Keep the Hub's client off the network, and give it back."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
