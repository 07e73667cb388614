# Needs Python 3.11 or later with venv, and a C compiler; everything else comes from PyPI.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN = $(VENV)/bin
NATIVE = _column _sections _shapes _allocations _values _liveness _usage _hlo
ALLOWED = $(wildcard tests/stubtest-allow.txt)
SOURCES = $(shell find src _native -type f ! -name '*.pyc' ! -path '*/.*') CMakeLists.txt pyproject.toml README.md

.PHONY: demo test lint bench clean

demo: $(VENV)/.installed
	rm -rf demo-out
	$(BIN)/xlamem convert tests/dumps --to demo-out
	@echo
	@echo "XLA's own printed peak of one of them, and what else xlamem sees in it:"
	@echo
	$(BIN)/xlamem info tests/dumps/tpu-libtpu-0.0.50.1-v5e-mlp_grad

test: $(VENV)/.test
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/cython-lint _native
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest $(addprefix xlamem.,$(NATIVE)) $(addprefix --allowlist ,$(ALLOWED))

bench: $(VENV)/.bench
	$(BIN)/python -m pytest bench $(ARGS)

clean:
	rm -rf $(VENV) demo-out build dist .pytest_cache .ruff_cache .mypy_cache .benchmarks

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "xlamem needs Python 3.11 or later: make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

# Compiled anew whenever a source changes.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check .
	touch $@

# The package is there already: its name brings only what the extra adds.
$(VENV)/.test $(VENV)/.lint $(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'xlamem[$(patsubst .%,%,$(notdir $@))]'
	touch $@
