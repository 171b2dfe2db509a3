# weft: `make demo`, `make test`, `make check`, `make bench`. Each sets up .venv first when it is not there.
# The first Python on the path that is new enough and runs.
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3 python; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: help setup demo test check lint types imports smoke bench clean

help:
	@echo "make demo   train a digit classifier over eight devices"
	@echo "make test   run the tests"
	@echo "make check  what CI runs: lint, types, import floors, tests"
	@echo "make bench  race the peer, in its own environment (ARGS=--quick: under five minutes; ARGS='--only NAME')"

setup: $(READY)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "weft needs Python 3.11 or newer on the path (or PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# by its path: a program beside the clone's folder would else take that folder for the package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -e '.[test]'
	@# the tests watch memory with jax_smi, which would bring the peer along
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps jax-smi
	@touch $(READY)

demo: $(READY)
	$(BIN)/weft run examples/train_digits.py --devices 8

test: $(READY)
	$(BIN)/python -m pytest -q -n $(WORKERS)

check: lint types imports test

lint: $(READY)
	$(BIN)/ruff check weft tests examples benchmarks

types: $(READY)
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(READY)
	$(BIN)/lint-imports --no-cache

smoke: $(READY)
	WEFT_PYTHON=$(BIN)/python bash tests/smoke.sh

bench: $(READY)
	$(BIN)/python benchmarks/run.py --write $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
