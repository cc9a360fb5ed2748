# Every task of the project; `make help` lists them. All of it runs in .venv, which is made on first use.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
TORCH_INSTALLED = $(VENV)/.torch-installed
PIP = $(BIN)/pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo demo-torch test test-slow check format bench chaos clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## the 64-GPU recipe on a virtual fleet, with its faults; KEEP=1 leaves it up
	@$(BIN)/python -m deploy.demo $(if $(KEEP),--keep)

demo-torch: $(TORCH_INSTALLED) ## its start with PyTorch: torchrun, 8 x 8 = 64 ranks
	@$(BIN)/python -m deploy.demo --torch $(if $(KEEP),--keep)

test: $(INSTALLED) ## run the tests; ARGS="..." goes to pytest
	$(BIN)/pytest -m "not slow" --numprocesses 2 --dist loadfile $(ARGS)

test-slow: $(INSTALLED) ## run the tests that take long: outages, chaos, the API's contract, a browser
	$(BIN)/pytest -m slow $(ARGS)

check: $(INSTALLED) ## lint, formatting, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED) ## put the code into the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED) ## measure; prints a table and writes build/bench.json
	$(BIN)/python -m tests.benchmarks

chaos: $(INSTALLED) ## kill and cut a stack at random; SEED=7 MINUTES=10 POSTGRESQL=1; writes build/chaos.json
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED)) $(if $(POSTGRESQL),--postgresql)

clean: ## remove what make made, .venv too
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(INSTALLED): pyproject.toml constraints.txt deploy/hashes.txt
	@echo "Installing into $(VENV), once"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --no-deps --require-hashes -r deploy/hashes.txt
	@$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(TORCH_INSTALLED): $(INSTALLED)
	@echo "Installing PyTorch into $(VENV), once"
	@$(PIP) --constraint constraints.txt --editable '.[torch]'
	@touch $@
