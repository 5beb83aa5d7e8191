"""PyTorch to ONNX: :func:`export` writes a model file that keeps every mask input and every dynamic axis."""
