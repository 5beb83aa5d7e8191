"""Lint: what is known to go wrong with masks, found in a file without running it.

lint                                     a file, and the findings in it
rule, rules                              what a rule is, and all of them by their codes
subject                                  the file as the rules see it, read once
masks, lengths, numbers, kernels, file   the rules: MP1xx to MP5xx
selection                                which rules are wanted: by command, or by pyproject.toml
known, known_probes                      faults of PyTorch, transformers and ONNX Runtime, and how to see each
text, github, sarif                      findings for people, for pull requests, for scanners
"""
