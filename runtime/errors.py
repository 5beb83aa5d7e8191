"""The errors of the runtime. Each message says what was given, what was expected and what to do."""

from __future__ import annotations


class MaskportError(Exception):
    """Base of every error that the runtime raises on purpose."""


class ModelError(MaskportError):
    """The file is no model that ONNX Runtime can load or run."""


class InputError(MaskportError, ValueError):
    """A name, type or shape that can't be taken, or an input that is missing."""


class AssumptionViolated(InputError):
    """An input breaks a fact that the model was optimized for, so that its answer would be wrong."""


class DeviceUnavailable(MaskportError):
    """The device that was asked for can't be used; nothing was run elsewhere instead."""
