# Every target sets up what it needs from nothing but Python 3.11+ and make; a second run finds it done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
USABLE := $(VENV)/.usable
# Every test worker, and every process a test starts, would compile all of it again.
export PYTHONDONTWRITEBYTECODE :=
# One worker for each version's shared broker, one for the tests that start nodes of their own.
LIVE_WORKERS ?= 4
# One more than there are cores: some tests wait a little, and the others go on.
QUICK_WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: help demo test test-quick matrix check format docs conformance bench bench-peers lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Redrive needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# What a user installs and nothing more; where everything is set up already, that serves.
$(USABLE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Redrive needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

demo: $(if $(wildcard $(READY)),$(READY),$(USABLE)) ## orders that go wrong in every way, and where each one ends (nothing to install first)
	@$(BIN)/redrive demo --once

test: $(READY) ## everything, on real RabbitMQ 3.10, 4.0 and 4.3 too
	@$(BIN)/python -m rig build
	$(BIN)/pytest -n auto -m "not live"
	$(BIN)/pytest -n $(LIVE_WORKERS) --dist loadgroup -m live

test-quick: $(READY) ## what needs no broker
	REDRIVE_QUICK=1 $(BIN)/pytest -q -n $(QUICK_WORKERS) --dist worksteal -m "not live and not slow"

matrix: $(READY) ## the long matrices: every version, every kill, every mutation, many seeds
	@$(BIN)/python -m rig build
	REDRIVE_MATRIX=1 $(BIN)/pytest
	$(BIN)/python -m tests.live.runtime.kills --keep
	$(BIN)/python -m tests.live.deadletters.kills --keep
	$(BIN)/python -m tests.live.admin.two_instances --versions 3.10 4.3 --keep
	$(BIN)/python -m tests.mutations --write
	$(BIN)/python -m tests.mutations.random_mutants --count 300 --seed 16 --write
	$(BIN)/python -m tests.simulation --seeds 0:20000

check: $(READY) ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/architecture

format: $(READY) ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY) ## write what in docs/ is made from code
	@$(BIN)/python -m docs.generate

conformance: $(READY) ## other people's test suites on the embedded broker
	$(BIN)/python -m tests.conformance

bench: $(READY) ## measure; raw numbers go to bench/results, the tables to docs/performance.md
	@$(BIN)/python -m rig build
	$(BIN)/python -m bench.topology
	$(BIN)/python -m bench.wire
	$(BIN)/python -m bench.embedded
	$(BIN)/python -m bench.amqp
	$(BIN)/python -m bench.runtime
	$(BIN)/python -m bench.telemetry
	$(BIN)/python -m bench.push
	$(BIN)/python -m bench.dead_letters
	$(BIN)/python -m bench.dead_letter_reads
	$(BIN)/python -m bench.admin_reads
	@$(BIN)/python -m docs.generate >/dev/null

bench-peers: $(READY) ## the AMQP benchmark with more clients (Python and Node)
	@$(BIN)/python -m rig build
	$(BIN)/python -m bench.amqp --peers
	@$(BIN)/python -m docs.generate >/dev/null

lock: ## renew requirements-dev.lock from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -o requirements-dev.lock

clean: ## forget the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
