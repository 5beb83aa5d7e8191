"""What a person or a CI job runs: the command line, comparison with PyTorch, and the demonstration."""
