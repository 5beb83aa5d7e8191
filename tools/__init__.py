"""What a person or a CI job runs: the command line, the comparison with PyTorch, the demonstration."""
