"""Known faults of what Maskport stands between: PyTorch, transformers and ONNX Runtime, and whether they are there."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

__all__ = ["KNOWN", "Known", "installed", "tried"]

# The names that a package may be installed by.
DISTRIBUTIONS = {"onnxruntime": ("onnxruntime-gpu", "onnxruntime")}


@dataclass(frozen=True)
class Known:
    """One fault.

    Attributes
    ----------
    package
        Whose it is.
    what
        What goes wrong.
    seen
        A version of the package that has it.
    rule
        The rule that finds it in a file.
    """

    package: str
    what: str
    seen: str
    rule: str | None = None


# By the name of the function in `known_probes` that tells whether it is there.
KNOWN = {
    "rotary_batch": Known(
        "onnxruntime", "RotaryEmbedding with cos and sin of batch 1 fails at any other batch", "1.31.1", "MP404"
    ),
    "key_mask_rank": Known(
        "onnxruntime", "Attention doesn't broadcast a mask [B, 1, 1, T] over the queries", "1.31.1", "MP403"
    ),
    "rms_norm_types": Known(
        "onnxruntime", "RMSNormalization of a half input with a float32 scale doesn't load", "1.31.1", "MP405"
    ),
    "attention_window": Known("onnxruntime", "Attention of opset 25 with a window doesn't load", "1.31.1", "MP406"),
    "empty_batch": Known("onnxruntime", "GroupQueryAttention ends the process on a batch of 0 rows", "1.31.1"),
    "unmasked_row": Known(
        "onnxruntime",
        "MultiHeadAttention with an integer mask weighs a row without keys as if nothing were masked",
        "1.31.1",
    ),
    "mean_row": Known(
        "torch", "A row without keys is 0 in eager mode, and the mean of the values in its export at opset 20", "2.13.0"
    ),
    "half_fill": Known(
        "torch", "mask * -1e9 in float16 is right in eager mode, and NaN in its export", "2.13.0", "MP301"
    ),
    "traced_batch": Known(
        "torch", "The older exporter (dynamo=False) keeps the example's sizes in nn.MultiheadAttention", "2.13.0"
    ),
    "rotary_export": Known(
        "transformers", "Llama, exported at opset 23, gives RotaryEmbedding cos and sin of batch 1", "5.23.0", "MP404"
    ),
}


def installed(known: Known) -> str | None:
    """Return the installed version of a fault's package; None if there is none."""
    for name in DISTRIBUTIONS.get(known.package, (known.package,)):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def tried(name: str) -> tuple[bool | None, str | None]:
    """Return whether a fault is there, or None and why that could not be tried."""
    probes = importlib.import_module(".known_probes", __package__)
    try:
        return bool(getattr(probes, name)()), None
    except ModuleNotFoundError as error:
        return None, f"it needs {error.name}, which is not installed"
    except Exception as error:
        return None, f"the probe failed: {(str(error).splitlines() or [type(error).__name__])[0][:200]}"
