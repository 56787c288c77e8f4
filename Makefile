# The project's commands; the work is done by scripts/. `make` lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
.PHONY: help env java postgres mysql browser page page-images check format ready test test-all demo bench bench-guard sim docs options connectors functions features lock clean

PYTEST_ARGS ?=
# Much of a test on Spark is waiting, so four processes are worth having on two cores.
PYTEST_PROCESSES ?= 4
BENCH_ARGS ?=
SEEDS ?= 100
# PACKAGES=lowest or PACKAGES=newest runs the tests with other releases, see scripts/packages.
PACKAGES ?=
RUN := scripts/run
TEST_RUN := $(if $(PACKAGES),scripts/packages $(PACKAGES),$(RUN))
PYTEST := $(TEST_RUN) pytest -n $(PYTEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# A full run is one of all tests with the packages of the lock, see tests/selection.
RECORD := $(if $(strip $(PYTEST_ARGS)$(PACKAGES)),,--record)
STAMP := .venv/.up-to-date
BENCH_STAMP := .venv/.has-bench
CLASSES := build/spark-classes$(PACKAGES:%=-%).jsa
DOCS := build/docs-environment/.made
SERVERS := build/servers
REWRITTEN := build/tests-rewritten

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(STAMP) ## make .venv as the lock file says

$(STAMP): pyproject.toml requirements.lock scripts/env scripts/find-python scripts/uv
	@scripts/env
	@touch $@

$(BENCH_STAMP): $(STAMP) requirements-bench.lock
	@scripts/env bench
	@touch $@

java: ## find a Java 17 or newer; root on Debian gets one installed
	@scripts/java --install

postgres: env ## find a PostgreSQL 15 or newer; root on Debian gets one installed
	@scripts/postgres --install

mysql: env ## find a MariaDB or MySQL; root on Debian gets MariaDB installed
	@scripts/mysql --install

browser: ## find a Chromium; root on Debian gets one installed
	@scripts/browser --install

page: ## build the page that shows jobs (needs Node.js 20 or newer)
	@scripts/page

page-images: env java page browser ## take the pictures of the page for the documents
	@$(RUN) python -m tests.server.page.images docs/images
	@$(RUN) python -m tests.tutorial --here --pictures docs/images

check: env ## lint, format, types and the import contract
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) mypy
	@$(RUN) lint-imports --no-logo

format: env ## write what the linter and the formatter can mend
	@$(RUN) ruff check --fix-only
	@$(RUN) ruff format

$(CLASSES): $(STAMP) tests/class_archive.py
	@$(TEST_RUN) python -m tests.class_archive

# What pytest makes of 800 modules is kept; in a fresh clone each of its processes would make all of it at the same time.
$(REWRITTEN): $(STAMP)
	@$(TEST_RUN) pytest --collect-only -q >/dev/null || true
	@mkdir -p $(@D)
	@touch $@

$(DOCS): requirements-docs.lock scripts/docs
	@scripts/docs --install

$(SERVERS): $(STAMP) $(wildcard tests/servers/*.py src/penstock/cli/trial/*.py)
	@$(RUN) python -m tests.servers.install
	@mkdir -p $(@D)
	@touch $@

ready: env java postgres mysql
	@scripts/page --if-possible
	@scripts/browser --install >/dev/null || true
	@$(TEST_RUN) true
	@$(MAKE) -j 2 check $(REWRITTEN) $(CLASSES) $(SERVERS) $(DOCS)

test: ready ## all checks, then the tests that a change can break (PYTEST_ARGS="-k window" names others)
	@$(PYTEST) $(PYTEST_ARGS)

test-all: ready ## all checks, then all tests; records that they pass
	@$(PYTEST) --all $(RECORD) $(PYTEST_ARGS)

demo: env java ## a real job on Spark that loses a worker and still comes out right
	@$(RUN) penstock demo

bench: $(BENCH_STAMP) java ## throughput beside a bare Python loop (BENCH_ARGS="--only W1 --profile")
	@$(RUN) python -m benchmarks $(BENCH_ARGS)

bench-guard: $(BENCH_STAMP) java ## fail when throughput fell (BENCH_ARGS='--base REV' against another build)
	@$(RUN) python -m benchmarks --guard --pairs 7 $(BENCH_ARGS)

sim: env ## simulated clusters, one a seed (SEEDS=1000)
	@$(RUN) penstock-sim --seeds $(SEEDS)

docs: ## build the documentation site with the API reference, and check its links
	@scripts/docs

options: env ## write the page of all options from the code
	@$(RUN) python scripts/options.py docs/options.md

connectors: env ## write the tables of options on the pages of connectors and formats from the code
	@$(RUN) python scripts/connectors.py docs/table-connectors.md docs/formats.md

functions: env ## write the page of all functions of SQL from the code
	@$(RUN) python scripts/functions.py docs/sql-functions.md

features: env ## write the page of Flink's features from its file, and print the sums
	@$(RUN) python scripts/features.py docs/flink-features.toml docs/flink-features.md

lock: ## write the lock files anew (LOCK_ARGS=--upgrade moves every pin)
	@scripts/lock $(LOCK_ARGS)

clean: ## remove the environment, its tools and every cache
	rm -rf .venv .tools .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
