# Each target does its own set-up in .venv and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 2

.PHONY: run test test-slow lint bench examples clean

run: $(STAMP)  ## train the ride negotiator, evaluate it on held-out days, say where the report is (about 5 minutes)
	@$(BIN)/shoal train rides
	@$(BIN)/shoal evaluate "$$(ls -td runs/rides-2* | head -n 1)" --days 60 --reference-iterations 200 --reference-seeds 1

test: $(STAMP)  ## the tests that take minutes
	$(BIN)/pytest

test-slow: $(STAMP)  ## learning, soak and other long tests
	$(BIN)/pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## every benchmark with its target
	$(BIN)/python -m benchmarks all

examples: $(STAMP)
	for script in examples/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# torch first, by its exact version, so that no other package's range brings in another build of it.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt "torch==$$(sed -n 's/^torch==//p' constraints.txt)"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,tensorboard,wandb,peers]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
