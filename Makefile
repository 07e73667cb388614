# Needs Python 3.11 or later with venv, and a C compiler; everything else comes from PyPI.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
MINUTES ?= 10
BUILD ?=
BIN = $(VENV)/bin
NATIVE = $(patsubst _native/%.pyx,%,$(wildcard _native/*.pyx))
# As a release is built; a C function that could raise, and so would have to take the GIL, is a hint then.
CYTHON = $(BIN)/python -m cython -3 -Wextra -X freethreading_compatible=True -X boundscheck=False \
	-X initializedcheck=False -X wraparound=False -X cdivision=True -I _native
SOURCES = $(shell find src _native -type f ! -name '*.pyc' ! -path '*/.*') CMakeLists.txt pyproject.toml README.md

# What looks at memory, and at what the native modules make of it.
QUICK = $(patsubst %,tests/test_%.py,native spans dump compute cuts verify stream together hostile)
# The sanitizers' libraries must be there first; Python's own allocator would hide from them what it hands out.
SANITIZERS = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0

.PHONY: demo test test-sanitized test-checked fuzz lint bench bench-check clean

demo: $(VENV)/.duckdb
	rm -rf demo-out
	$(BIN)/xlamem convert tests/dumps --to demo-out
	@echo
	@echo "What one of them must fit, and what is in use at its peak:"
	@echo
	$(BIN)/xlamem peak tests/dumps/tpu-libtpu-0.0.50.1-v5e-host_offload --device v5e
	@echo
	@echo "All of them, by SQL: where XLA's printed peak is not ours (query 7 of docs/warehouse.md):"
	@echo
	$(BIN)/xlamem sql demo-out "\
	SELECT platform, module_name, max(bytes) FILTER (definition = 'xla_printed') AS xla, \
	  max(bytes) FILTER (definition = 'peak_together') AS ours, ours - xla AS difference \
	FROM peaks JOIN modules USING (dump_id) \
	GROUP BY dump_id, platform, module_name \
	HAVING difference <> 0 \
	ORDER BY abs(difference) DESC, dump_id LIMIT 10"

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto $(ARGS)

# The native modules with address and undefined-behaviour sanitizers, and with checked bounds, each in a venv of its own.
test-sanitized:
	$(MAKE) VENV=$(VENV)-sanitized BUILD=SANITIZE $(VENV)-sanitized/.test
	$(SANITIZERS) $(VENV)-sanitized/bin/python -m pytest $(QUICK) $(ARGS)

test-checked:
	$(MAKE) VENV=$(VENV)-checked BUILD=CHECKED $(VENV)-checked/.test
	$(VENV)-checked/bin/python -m pytest $(QUICK) $(ARGS)

# Changed dumps, for so many minutes; what fails is kept in build/fuzz.
fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz/run.py --minutes $(MINUTES) --keep build/fuzz $(ARGS)

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check src tests bench
	PATH="$(abspath $(BIN)):$$PATH" cython-lint _native  # it looks for pycodestyle there
	mkdir -p build/lint
	! for m in $(NATIVE); do \
	  $(CYTHON) --module-name xlamem.$$m _native/$$m.pyx -o build/lint/$$m.c || echo "performance hint: $$m fails"; \
	done 2>&1 | grep 'performance hint'
	$(BIN)/mypy --cache-dir=/dev/null
	$(BIN)/python -m mypy.stubtest $(addprefix xlamem.,$(NATIVE)) --mypy-config-file pyproject.toml \
	  --allowlist tests/stubtest-allow.txt --ignore-unused-allowlist

bench: $(VENV)/.bench
	$(BIN)/python -m pytest bench $(ARGS)

# Fails if reading is slower than the stored baseline.
bench-check: $(VENV)/.bench
	$(BIN)/python bench/compare.py $(ARGS)

clean:
	rm -rf $(VENV) $(VENV)-sanitized $(VENV)-checked demo-out build dist .pytest_cache .ruff_cache .mypy_cache .benchmarks

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "xlamem needs Python 3.11 or later: make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)

# Compiled anew whenever a source changes.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(BUILD),-C cmake.define.XLAMEM_$(BUILD)=ON) .
	touch $@

# The package is there already: its name brings only what the extra adds.
$(VENV)/.test $(VENV)/.lint $(VENV)/.bench $(VENV)/.duckdb: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'xlamem[$(patsubst .%,%,$(notdir $@))]'
	touch $@
