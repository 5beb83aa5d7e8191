"""Running a model: :class:`Session` checks inputs by name and runs ONNX Runtime on the device that was asked for."""
