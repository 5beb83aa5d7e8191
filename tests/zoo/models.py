"""The zoo's models, exported once for all tests and workers."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
import transformers
from filelock import FileLock
from maskport.export import export
from maskport.export.hf import Loaded, load
from maskport.export.tracing.quiet import collected

from .configs import ARCHITECTURES


@dataclass(frozen=True)
class ZooModel:
    """One architecture at one opset.

    Attributes
    ----------
    name, opset
        As in :data:`.configs.ZOO`; None is the exporter's default opset.
    folder
        Where its files are, and those of the other tests on it.
    """

    name: str
    opset: int | None
    folder: Path

    @property
    def loaded(self) -> Loaded:
        """The module in eager mode, with its example inputs and dynamic shapes; shared within the process."""
        return _loaded(self.folder.parent / "config")

    @property
    def path(self) -> Path:
        """Our export's file."""
        return self.made("ours.onnx", self._export)

    @property
    def repairs(self) -> list[str]:
        """Names of the repairs that our export needed."""
        metadata = {entry.key: entry.value for entry in onnx.load(self.path).metadata_props}
        return json.loads(metadata["zoo.repairs"])

    @property
    def plain(self) -> Path:
        """The file of torch.onnx.export, as it is. Without gradients: T5 is not exported with them."""
        return self.made("plain.onnx", self._export_plain)

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return a file of the model's folder; the first to ask, in any worker, makes it."""
        path = self.folder / name
        with FileLock(f"{path}.lock"):
            if not path.exists():
                new = path.with_name(f"new-{name}")
                make(new)
                new.rename(path)
        return path

    def _export(self, path: Path) -> None:
        module, inputs, shapes = self.loaded
        exported = export(module, inputs, dynamic_shapes=shapes, opset_version=self.opset)
        exported.model.metadata_props["zoo.repairs"] = json.dumps(exported.repairs)
        path.write_bytes(exported.serialize())

    def _export_plain(self, path: Path) -> None:
        module, inputs, shapes = self.loaded
        with collected(), torch.no_grad():
            program = torch.onnx.export(
                module, kwargs=inputs, dynamic_shapes=shapes, opset_version=self.opset, dynamo=True, verbose=False
            )
        assert program is not None
        program.save(path)


@functools.cache
def _loaded(folder: Path) -> Loaded:
    return load(folder)


class Zoo:
    """The models by name and opset, in a folder that processes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, opset: int | None = None) -> ZooModel:
        """Return a model; its configuration is written, and the rest is made when it is asked for."""
        model = ZooModel(name, opset, self.folder / name / f"opset-{opset or 'default'}")
        model.folder.mkdir(parents=True, exist_ok=True)
        chosen = ARCHITECTURES[name]
        with FileLock(self.folder / name / "config.lock"):
            config = self.folder / name / "config"
            if not config.exists():
                getattr(transformers, chosen.config)(**chosen.arguments).save_pretrained(config)
        return model
