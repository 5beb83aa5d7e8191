"""Masks, attention, head fusion and transformer blocks in plain PyTorch."""
