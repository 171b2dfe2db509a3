# weft: `make help` lists what there is. Every target sets up .venv first if it is missing.
# The first Python on the path that runs and is new enough.
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3 python; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
# which third of the tests `make check` runs once more on AVX2 and on a plugin: the last digits of the commit decide
PART = $$((0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0) % 3))/3

.PHONY: help newest setup structure demo test restricted arm check lint types types-users imports docs docs-look notebooks dist mpi smoke bench clean ecosystem plans fuzz stubs replay planted accelerators cluster

help:
	@echo "make demo   train a digit classifier over eight devices"
	@echo "make test   run the tests"
	@echo "make mpi    run all tests of programs of several processes, the long ones too, under MPICH and Open MPI"
	@echo "make cluster  run programs on several hosts, which are network namespaces, under a real Slurm and with 300 random faults (root; installs Debian packages)"
	@echo "make arm    run tests of generated code on aarch64, emulated by QEMU (Debian's qemu-user-static), in 15 minutes at most"
	@echo "make check  what CI runs: lint, types, import layers, site, tests"
	@echo "make types-users  check programs of users with pyright, mypy, ty and pyrefly, which get an environment of their own"
	@echo "make structure  count complex functions, long signatures and comparisons with names, and check their bounds"
	@echo "make docs   build the site in docs/_build/html, and check its links, sizes and code"
	@echo "make docs-look  take screenshots of the built site in headless Chromium (Debian's chromium), and check widths and errors"
	@echo "make notebooks  execute all notebooks of the gallery, and compare their output with the record"
	@echo "make dist   build wheel and sdist in dist/, install each in a fresh environment and run the demo there"
	@echo "make fuzz   call every public function with arguments that do not fit, 2000 calls more (ARGS='--calls 20000');"
	@echo "            ARGS='--what programs --calls 500': random programs on sharded arrays, each run in several ways"
	@echo "            ARGS='--what chains --calls 5000': chains of ordinary ops, compiled and op by op; --what pairs: all pairs of families"
	@echo "make replay compile 50 programs on HEAD~1 and HEAD and compare, if HEAD's message says \"no functional change\";"
	@echo "            'benchmarks/replay.py OLD NEW' compares any two commits on the whole corpus"
	@echo "make planted  plant 20 named faults in copies of the compiler and see which check catches each (ARGS='--mutants 100')"
	@echo "make accelerators  install PJRT plugins apart and test programs on them (WEFT_LIBTPU=path: compile for TPUs too)"
	@echo "make ecosystem  run programs for flax, equinox and optax on weft and on JAX (WEFT_ENV=… JAX_ENV=…: environments with the libraries)"
	@echo "make plans  plan the training scripts of examples/ecosystem/training by weft auto, and compare prices (WEFT_ENV=…)"
	@echo "make bench  compare with JAX, which gets an environment of its own (ARGS=--quick: under five minutes; ARGS='--only NAME')"

setup: $(READY)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "weft needs Python 3.11 or newer on the path (or PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# by path: a program next to the checkout would otherwise import its folder as the package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -e '.[test]'
	@# the tests use jax_smi, whose dependencies include JAX itself
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps jax-smi
	@touch $(READY)

demo: $(READY)
	$(BIN)/weft run examples/train_digits.py --devices 8

test: $(READY)
	$(BIN)/python -m pytest -q -n $(WORKERS)

# what depends on the processor, once more as on one that has AVX2 and no more
restricted: $(READY)
	@if grep -qw avx512f /proc/cpuinfo; then \
	  WEFT_CPU_FEATURES=avx2 $(BIN)/python -m pytest -q -n $(WORKERS) $(ARGS) tests/codegen tests/compiler tests/pipeline; \
	else echo "this processor has no more than AVX2: 'make test' has run them so"; fi

# Tests whose generated code an emulated aarch64 processor runs: linking, threads, vector kernels, reductions, scans and products
ARM_TESTS := tests/codegen/test_llvm_linker.py tests/codegen/test_llvm_c.py tests/codegen/test_pool.py tests/codegen/test_combine.py \
  tests/codegen/test_gemm_neon.py tests/codegen/test_gemm_mmla.py tests/codegen/test_vector_scan.py tests/compiler/test_column_reduction.py
# QEMU does not show which pages are advised to be huge
ARM_DESELECTED := tests/codegen/test_pool.py::test_only_large_scratch_asks_for_huge_pages
ARM_PYTHON := $(VENV)/aarch64/usr/bin/python

arm: $(READY) $(VENV)/aarch64/.ready
	WEFT_CACHE_DIR=$(abspath $(VENV))/aarch64/cache timeout 900 $(ARM_PYTHON) -m pytest -q -p no:cacheprovider $(ARM_TESTS) --deselect $(ARM_DESELECTED)

$(VENV)/aarch64/.ready: pyproject.toml tests/harness/aarch64.py
	$(BIN)/python -m tests.harness.aarch64 $(VENV)/aarch64
	@touch $@

# programs of several processes: all their tests, those under mpiexec and the long ones too. Of two MPIs in one environment each overwrites
# the other's mpiexec, so Open MPI has an environment of its own.
mpi: $(READY) $(VENV)/openmpi/.ready
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "mpi or slow or not slow" tests/processes
	$(VENV)/openmpi/bin/python -m pytest -q -m "mpi or slow or not slow" -k "mpiexec or open_mpi or mpi_gives or by_mpi" tests/processes
	$(BIN)/python -m tests.processes.faults --count 100
	$(BIN)/python -m tests.processes.elastic_faults --count 20

# hosts are network namespaces of this machine
cluster: $(READY)
	@test "$$(id -u)" = 0 || { echo "make cluster makes network namespaces, which needs root"; exit 1; }
	apt-get install -y -qq slurm-wlm munge libpmix-dev iproute2 nftables openssh-server
	$(BIN)/python -m pytest -q -m root tests/processes
	$(BIN)/python -m tests.processes.slurm
	$(BIN)/python -m tests.processes.elastic_faults --count 300

# the newest Python that weft supports: the parts that depend on the interpreter, and the reading of its memory
NEWEST := $(shell for python in python3.13 $(HOME)/.pyenv/versions/3.13*/bin/python3.13; do \
  $$python -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)

newest:
	@test -n "$(NEWEST)" || echo "there is no Python 3.13 on the path: its tests are left out"
	@test -z "$(NEWEST)" || $(MAKE) $(VENV)/newest/.ready
	@test -z "$(NEWEST)" || $(VENV)/newest/bin/python -m pytest -q -n $(WORKERS) -p no:cacheprovider tests/cpython tests/packaging/test_platforms.py tests/runtime/test_buffer.py

$(VENV)/newest/.ready: pyproject.toml
	$(NEWEST) -m venv $(VENV)/newest
	$(VENV)/newest/bin/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat \
	  -e . 'pytest>=8' 'pytest-xdist>=3.5' 'hypothesis>=6.100' 'mpmath>=1.3'
	@touch $@

$(VENV)/openmpi/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)/openmpi
	$(VENV)/openmpi/bin/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat \
	  -e '.[mpi,checkpoint]' openmpi 'pytest>=8' 'hypothesis>=6.100' 'mpmath>=1.3'
	@touch $@

# the type checker and the site share the two cores
check: lint imports
	$(MAKE) --jobs 2 --output-sync=target types docs
	$(MAKE) test replay
	$(MAKE) newest
	$(MAKE) restricted ARGS="--part $(PART)"
	$(MAKE) accelerators ARGS="--quick --part $(PART)"

lint: $(READY)
	$(BIN)/ruff check weft tests examples benchmarks docs
	$(BIN)/ruff format --check --quiet weft tests examples benchmarks docs conftest.py

stubs: $(READY)
	$(BIN)/python -m weft.tools.stubs

types: $(READY)
	$(BIN)/pyright --pythonpath $(BIN)/python

# users' programs with pyright, mypy, ty and pyrefly; the tests check them with pyright
types-users: $(READY) $(VENV)/types/.ready
	$(VENV)/types/bin/weft shim install
	$(BIN)/python -m tests.types_users.check $(VENV)/types $(ARGS)

$(VENV)/types/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)/types
	$(VENV)/types/bin/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -e . mypy ty pyrefly
	@touch $@

# counts of the structure, and the tests that bound them
structure: $(READY)
	$(BIN)/python -m tests.architecture.counts
	$(BIN)/python -m pytest -q tests/architecture

imports: $(READY)
	$(BIN)/lint-imports --no-cache

docs: $(READY) $(VENV)/.docs
	rm -rf docs/_build
	$(BIN)/sphinx-build -W --keep-going -E -q -j 2 -b html -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/check_site.py docs/_build/html
	@echo "docs/_build/html/index.html"

$(VENV)/.docs: pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -e '.[docs]'
	@touch $@

docs-look: docs
	$(BIN)/python docs/look.py docs/_build/html

notebooks: $(READY)
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "slow or not slow" tests/examples/test_gallery.py

dist: $(READY)
	rm -rf dist build
	$(BIN)/python -m build --outdir dist .
	WEFT_DIST=dist $(BIN)/python -m pytest -q -m slow tests/packaging

smoke: $(READY)
	WEFT_PYTHON=$(BIN)/python bash tests/smoke.sh

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz.campaign $(ARGS)

replay: $(READY)
	$(BIN)/python benchmarks/replay.py --if-claimed --programs 50

planted: $(READY)
	$(BIN)/python -m tests.planted $(ARGS)

# programs on PJRT plugins, which .accelerators has
accelerators: $(READY)
	$(BIN)/python -m tests.accelerators.run --workers $(WORKERS) $(ARGS)

# programs for libraries, in environments that have them: make ecosystem WEFT_ENV=… JAX_ENV=…
ecosystem:
	@test -n "$(WEFT_ENV)" -a -n "$(JAX_ENV)" || { echo "name two environments with the libraries: WEFT_ENV (weft shim install), JAX_ENV"; exit 1; }
	$(WEFT_ENV)/bin/python examples/ecosystem/compare.py --weft $(WEFT_ENV)/bin/python --jax $(JAX_ENV)/bin/python

# plans of training scripts: make plans WEFT_ENV=… (an environment with weft as jax, flax, equinox, optax and einops)
plans:
	@test -n "$(WEFT_ENV)" || { echo "name an environment with the libraries: WEFT_ENV (weft shim install)"; exit 1; }
	$(WEFT_ENV)/bin/python -m benchmarks.automatic.scripts $(ARGS)

bench: $(READY)
	$(BIN)/python benchmarks/run.py --write $(ARGS)

clean:
	rm -rf $(VENV) .accelerators .pytest_cache .ruff_cache .hypothesis build dist docs/_build docs/api docs/gallery *.egg-info
