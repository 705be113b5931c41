# Each target does its own set-up in .venv and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH := torch==$(shell sed -n 's/^torch==//p' constraints.txt)
export OMP_NUM_THREADS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install browser run test test-slow lint docs examples wheel wheel-install bench results clean

help:  ## what there is to make (this list)
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-21s%s\n", $$1, $$2 }'

install: $(STAMP)  ## shoal with everything it can use, in .venv

browser:  ## Chromium for the tests of pages, by apt-get where this user may; without it they are skipped
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && { timeout 300 apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 \
	    || { timeout 120 apt-get update -qq >/dev/null 2>&1 \
	      && timeout 300 apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1; }; }; } \
	  || echo "no Chromium here: the tests of pages in a browser are skipped"

run: $(STAMP)  ## train the ride negotiator from nothing, evaluate it on held-out days, say where the report is (about 5 minutes)
	@$(BIN)/shoal train rides --start none --futures 0
	@$(BIN)/shoal evaluate "$$(ls -td runs/rides-2* | head -n 1)" --days 60 --reference-iterations 200 --reference-seeds 1

TEST_PROCESSES ?= 2

test test-slow: export OMP_NUM_THREADS = 1

test: $(STAMP)  ## the tests that take minutes, in TEST_PROCESSES=2 processes
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadgroup

test-slow: $(STAMP)  ## learning, soak and other long tests
	$(BIN)/pytest -m slow

lint: $(STAMP)  ## ruff, mypy, and who may import whom
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/ruff format --check src tests benchmarks examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)  ## the documentation as a site, in site/ (a broken link fails)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	$(BIN)/python tools/check_site.py site

examples: $(STAMP)  ## run every example
	tools/try_task_package.sh $(abspath $(BIN)) build/task_package
	for script in examples/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

wheel: $(STAMP)  ## the wheel in dist/, with what it holds checked
	rm -rf build dist
	$(BIN)/python -m build --wheel --no-isolation >/dev/null
	$(BIN)/twine check --strict dist/*.whl
	$(BIN)/python tools/check_wheel.py dist/*.whl

wheel-install: wheel  ## the wheel without extras in a clean environment trains CartPole
	rm -rf build/clean
	$(PYTHON) -m venv build/clean
	build/clean/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH)
	build/clean/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build/clean && bin/python "$(CURDIR)/tools/check_installed.py"

bench: $(STAMP)  ## every benchmark with its target
	$(BIN)/python -m benchmarks all

results: $(STAMP)  ## docs/results.md and the figures of README.md, from benchmarks/results
	$(BIN)/python -m benchmarks.harness.pages

# torch first, by its exact version, so that no other package's range brings in another build of it.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) setuptools wheel
	$(PIP) $(TORCH)
	$(PIP) --no-build-isolation -e '.[all,dev,docs,peers]'
	touch $(STAMP)

clean:  ## remove what make made (runs/ stays)
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
