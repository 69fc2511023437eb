# The two main targets, `make repro` and `make test`, need nothing but a Python of 3.10 or newer.

VENV ?= .venv
BIN := $(VENV)/bin
# The first Python that is new enough and starts; PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3.10 python3.14 python3 python; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && { echo $$p; break; }; done)
SOAK_SECONDS ?= 3600
# Processes that share out the test files; 0 runs them in one, for a debugger.
WORKERS ?= 2

# Many tests start Pythons: none of them is to compile everything again.
export PYTHONDONTWRITEBYTECODE :=

.DELETE_ON_ERROR:
.PHONY: repro test test-releases bench soak lint types docs dist clean

repro: $(VENV)/.cli-ready
	$(BIN)/scalarintern repro --dsl 4.6.1 --plot growth-4.6.1.png
	$(BIN)/scalarintern repro --plot growth-newest.png

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-releases: $(VENV)/.ready
	$(BIN)/python scripts/test_releases.py

bench: $(VENV)/.ready
	$(BIN)/python -m benchmarks --json bench.json

soak: $(VENV)/.ready
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m benchmarks.soak

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.ready
	$(BIN)/mypy

docs: $(VENV)/.ready
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b doctest docs docs/_build/doctest

dist: $(VENV)/.ready
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python scripts/smoke_dist.py

clean:
	rm -rf $(VENV) dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f bench.json soak.json soak.png growth-*.png

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no Python of 3.10 or newer was found; set PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

# What a user needs for the main job, and what development needs on top.
$(VENV)/.cli-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dsl,cli]'
	touch $@

$(VENV)/.ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.cli-ready
