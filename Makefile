# Taskyard's front door. Needs Python 3.11+, pip and make; brings everything else itself.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV := .tools/bin/uv
BIN := .venv/bin
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"
JOBS ?= 6

FUZZ := .venv-fuzz
# The page: its sources, and what they become.
PAGE := src/taskyard/server/page/index.html
PAGE_SOURCES := $(shell find ui -name node_modules -prune -o -type f ! -path ui/src/api/schema.ts -print)
COMPILE := pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header

.PHONY: help run up page test check test-ui soak static fuzz-env services fmt bench bench-quick docs pictures pins clean

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .venv/ready ## run the example release graph to its end
	@$(RUN) taskyard run examples/release.yaml

up: $(PAGE) ## start a server with its page, and a bot, on this machine
	@$(RUN) taskyard up

page: $(PAGE) ## build the web page

test: check ## everything CI runs: format, lint, types, floors, docs, tests

check: static fuzz-env services $(PAGE) .venv/page-checked
	$(RUN) pytest -n $(JOBS) --dist worksteal

test-ui: $(PAGE) .venv/page-checked services ## the tests of the web page, in a browser; pictures go to screenshots/
	$(RUN) pytest -n 2 --dist loadscope tests/ui

soak: .venv/ready fuzz-env services ## the tests that try random examples, with ten times as many
	TASKYARD_SOAK=1 $(RUN) pytest -n $(JOBS) --timeout 7200 tests/core tests/library tests/lifecycle tests/engine \
		tests/model tests/hardening tests/crash tests/races tests/bot/engines tests/e2e tests/servers

static: .venv/ready ## only what needs no running code: format, lint, types, floors
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) lint-imports

fuzz-env: $(FUZZ)/ready ## the environment of what asks the server odd things

services: .venv/ready ## the message brokers and the browser that tests start, from Debian packages
	@$(RUN) python -m tests.debian

fmt: .venv/ready ## format and mend what can be mended
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

bench: .venv/ready $(PAGE) ## run every benchmark and write benchmarks/results/
	$(RUN) python -m benchmarks

bench-quick: .venv/ready $(PAGE) ## run a small version of every benchmark, to see that each still works
	@$(RUN) python -m benchmarks --quick

docs: .venv/ready ## write the generated parts of docs/ anew
	$(RUN) python docs/generate.py

pictures: $(PAGE) services ## take the pictures of the page in docs/pictures/ anew
	$(RUN) PYTHONPATH=. python docs/pictures.py

pins: $(UV) ## resolve pyproject.toml anew into requirements/
	$(UV) $(COMPILE) --group dev pyproject.toml -o requirements/dev.txt
	$(UV) $(COMPILE) --group fuzz -o requirements/fuzz.txt
	$(UV) $(COMPILE) --group ui -o requirements/ui.txt

clean: ## remove what make made
	rm -rf .tools .venv $(FUZZ) ui/node_modules src/taskyard/server/page screenshots .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(UV):
	$(PYTHON) -m pip install -q --disable-pip-version-check --target .tools uv==0.13.7

.venv/ready: $(UV) pyproject.toml requirements/dev.txt
	$(UV) venv -q --clear --python $(PYTHON) .venv
	$(UV) pip sync -q --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(FUZZ)/ready: $(UV) requirements/fuzz.txt
	$(UV) venv -q --clear --python $(PYTHON) $(FUZZ)
	$(UV) pip sync -q --compile-bytecode --python $(FUZZ)/bin/python --require-hashes requirements/fuzz.txt
	@touch $@

.venv/ui-ready: .venv/ready requirements/ui.txt
	$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/ui.txt
	@touch $@

$(PAGE): .venv/ui-ready $(PAGE_SOURCES)
	$(RUN) python ui/build.py
	@touch $@

.venv/page-checked: .venv/ui-ready $(PAGE_SOURCES)
	$(RUN) python ui/build.py check
	@touch $@
