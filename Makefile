# weft: `make demo`, `make test`, `make check`, `make bench`. Each sets up .venv first when it is not there.
PYTHON ?= $(shell command -v python3.12 || command -v python3.11 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: help setup demo test check lint types imports smoke bench clean

help:
	@echo "make demo   train a digit classifier over eight devices"
	@echo "make test   run the tests"
	@echo "make check  what CI runs: lint, types, import floors, tests"
	@echo "make bench  race the peer, in its own environment"

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/weft run examples/train_digits.py --devices 8

test: $(READY)
	$(BIN)/python -m pytest -q -n $(WORKERS)

check: lint types imports test

lint: $(READY)
	$(BIN)/ruff check weft tests examples

types: $(READY)
	$(BIN)/pyright

imports: $(READY)
	$(BIN)/lint-imports

smoke: $(READY)
	WEFT_PYTHON=$(BIN)/python bash tests/smoke.sh

bench: $(READY)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
