# The verbs of the project. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BACKEND := $(VENV)/.backend
RUNTIME := $(VENV)/.runtime-installed
TOOLS := $(VENV)/.tools-installed

# What is type-checked: folders that do not exist yet are left out.
TYPED := src tests ops/local_services ops/node_builds.py ops/pages.py ops/wheel_pages.py $(wildcard bench docs/*.py)

# A cold fetch belongs before the tests: it takes longer than one of them may.
TESTED := cassandra chromium dynamodb kafka promtool redis s3
FETCH := $(BIN)/python ops/services fetch $(TESTED) || echo "What needs it will not be tested." >&2

# Rounds of each randomised test. With a seed, each round draws something that no run had before.
TEST_ROUNDS := 10
ALL_ROUNDS := 60
SIMULATE_ROUNDS := 300
NEW_SEED = $(BIN)/python -c 'import secrets; print(secrets.randbits(32))'

# Two processes keep two cores busy; more only take memory.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal --services

# A file whose hash is not in the pins is not installed.
INSTALL := $(BIN)/python -m pip install --quiet --require-hashes

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup run pages test quick test-all check simulate mutants bench up down docs screenshots

help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(TOOLS) ## Create .venv with the parley command, every engine, and the tools of development

run: $(RUNTIME) ## Start the server on ./data; installs what running needs, no tools; builds the pages if Node is there
	@$(BIN)/python -m ops.pages
	$(BIN)/parley serve --data ./data

pages: $(RUNTIME) ## Build the pages for the browser, which needs Node; once for each state of clients/
	@$(BIN)/python -m ops.pages --required

test: check ## Everything static, then every test layer: each promise once, each planted fault caught
	@$(FETCH)
	PARLEY_SIMULATE_ROUNDS=$${PARLEY_SIMULATE_ROUNDS:-$(TEST_ROUNDS)} $(PYTEST) --short tests

quick: setup ## While you work: what a change touches, within 90 seconds
	@$(BIN)/python -m tests.quick

test-all: check ## Every suite on every engine and in every mode, and longer walks; over an hour
	@$(FETCH)
	PARLEY_SIMULATE_ROUNDS=$${PARLEY_SIMULATE_ROUNDS:-$(ALL_ROUNDS)} $(PYTEST) tests

check: setup ## Only the static part: ruff, mypy, import rules, and types and format of TypeScript
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports
	@$(BIN)/python -m tests.node run check

simulate: setup ## The long run of every randomised test, with new seeds; ONLY= narrows it
	@$(FETCH)
	PARLEY_SIMULATE_SEED=$${PARLEY_SIMULATE_SEED:-$$($(NEW_SEED))} \
		PARLEY_SIMULATE_ROUNDS=$${PARLEY_SIMULATE_ROUNDS:-$(SIMULATE_ROUNDS)} \
		$(BIN)/pytest -n 2 --services -m randomised $(or $(ONLY),tests)

mutants: setup ## Plant faults in a copy, one at a time, and see each caught; ONLY= narrows it
	@$(FETCH)
	$(BIN)/python -m tests.mutants $(addprefix --only ,$(ONLY))

bench: setup ## Measure; ENGINE= and ONLY= narrow it
	$(BIN)/python -m bench $(if $(ENGINE),--engine $(ENGINE)) $(if $(ONLY),--only $(ONLY))

up: ## Start Cassandra, Kafka, DynamoDB Local, Redis and an S3 server on this machine, for several nodes
	@$(PYTHON) ops/services up >/dev/null
	@echo "Now a node of this shell finds them, and has the secret that all nodes of this folder share:"
	@echo "  set -a; . data/services/services.env; PARLEY_STORE_ENGINE=dynamodb; set +a"
	@echo "  $(BIN)/parley store init && $(BIN)/parley serve --data data/one"
	@echo "'ops/services status' shows them, 'make down' stops them. One node alone needs none: 'make run'."

down: ## Stop those services; their data stays in data/services
	@$(PYTHON) ops/services down

docs: setup ## Regenerate the generated pages of docs/, and the bill of materials
	$(BIN)/python -m docs.generate

screenshots: setup ## Pictures of every page of the chat and the console, light and dark, wide and narrow, in ./screenshots
	@$(BIN)/python -m tests.screenshots

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Parley needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." \
			"Name a newer one: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# pip checks no hashes of what it fetches to build a package. So that is installed first, beside the environment.
$(RUNTIME): pyproject.toml requirements.txt requirements-build.txt | $(BIN)/python
	$(INSTALL) --requirement requirements.txt
	@rm -rf $(BACKEND)
	$(INSTALL) --target $(BACKEND) --requirement requirements-build.txt
	PYTHONPATH=$(BACKEND) $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@$(BIN)/python -m compileall -q src  # a server that comes back after a crash must not compile first
	@touch $@

$(TOOLS): requirements-dev.txt $(RUNTIME)
	$(INSTALL) --requirement requirements-dev.txt
	@touch $@
