"""The installed ONNX Runtime packages: there are several, and they overwrite each other."""

from __future__ import annotations

import contextlib
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("onnxruntime", "onnxruntime-gpu")


def installed_packages() -> dict[str, str]:
    """Return the installed ONNX Runtime distributions with their versions."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def package_conflict() -> str | None:
    """Say in one line what is wrong if both ONNX Runtime packages are installed, else None."""
    if len(installed_packages()) < 2:
        return None
    return (
        "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; keep one: "
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu (it also runs on CPUs)"
    )
