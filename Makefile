# `make run` starts the demo, `make test` runs all checks. `make help` lists all targets.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
# The tests start hundreds of Python processes, which should not compile every module again.
unexport PYTHONDONTWRITEBYTECODE

ARGS ?=
# Number of parallel test processes; 0 runs the tests in one process, for debuggers. Many tests wait for a
# process or a timer: three test processes left a fifth of two cores idle.
WORKERS ?= 4
# A package of src/dragoman, whose tests are to be run; tests/areas.py knows which they are.
AREA ?=

# The first Python that is new enough; choose another with PYTHON=/path/to/python3.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
endif

BIN := .venv/bin
PYRIGHT := .cache/pyright/node_modules/.bin/pyright
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --no-config

define section
	@printf '\n── %s\n' '$(1)'
endef

.PHONY: help run example test fresh prove bench unit lint types format lock picture docs dist clean python-found env-run env-dev servers

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: env-run ## Set up and run the demo (ARGS="…")
	@exec $(BIN)/dragoman demo $(ARGS)

# The servers of each example, by their names in scripts/install_servers.py.
NAME ?=
SERVERS_excelmanus := excel-mcp-server
SERVERS_legal := china-law-mcp
SERVERS_otter := mcp-server-time npm-servers
SERVERS_kode := $(SERVERS_otter)
SERVERS_rrclaw := $(SERVERS_otter)
EXAMPLE_PATH := $(CURDIR)/$(BIN):$(CURDIR)/.cache/npm-servers/node_modules/.bin
EXAMPLE_PATH := $(EXAMPLE_PATH):$(CURDIR)/.cache/servers/excel-mcp-server/bin:$(CURDIR)/.cache/servers/china-law-mcp/bin
EXAMPLE_PATH := $(EXAMPLE_PATH):$(CURDIR)/.cache/servers/mcp-server-time/bin

example: env-run ## Run an example program (NAME=excelmanus, legal, otter, kode or rrclaw)
	@[ -n "$(SERVERS_$(NAME))" ] || { echo 'make example NAME=excelmanus, legal, otter, kode or rrclaw' >&2; exit 2; }
	@$(PYTHON) scripts/install_servers.py $(SERVERS_$(NAME))
	@set -a; [ ! -f examples/$(NAME)/example.env ] || . ./examples/$(NAME)/example.env; set +a; \
		export PATH="$(EXAMPLE_PATH):$$PATH"; exec $(BIN)/python examples/$(NAME)/main.py

test: lint types unit ## Run everything that CI checks: format, lint, types, all tests (AREA=server for one package)
	@printf '\n── all checks passed\n'

fresh: python-found ## Run the demo, all examples and all checks as on a new machine (ONLY="run legal")
	@$(PYTHON) scripts/fresh.py $(ONLY)

# In the order of their names, the many small files of tests/unit come last, and no process is left with a long one.
unit: env-dev servers ## Run only the tests (ARGS="-k name", AREA=server, WORKERS=0 for one process)
	$(call section,tests)
	@files=""; if [ -n "$(AREA)" ]; then files=$$($(PYTHON) tests/areas.py $(AREA)) || exit 2; fi; \
		$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) $$files || { code=$$?; [ $$code = 1 ] || exit $$code; \
		printf '\n── once more, alone: what fails here too is broken, what passes is unsteady and needs a fix\n'; \
		exec $(BIN)/python -m pytest --last-failed --maxfail 3 $(ARGS); }

lint: env-dev ## Check format and lint rules
	$(call section,format)
	@$(BIN)/ruff format --check .
	$(call section,lint)
	@$(BIN)/ruff check .

types: env-dev ## Check types (strict)
	@$(PYTHON) scripts/install_servers.py pyright
	$(call section,types)
	@$(PYRIGHT)

format: env-dev ## Format the code and apply the linter's fixes
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

# The parts of tests/prove to run, and the seed to repeat an earlier run.
ONLY ?=
SEED ?=
PARTS := $(patsubst tests/prove/test_%.py,%,$(sort $(wildcard tests/prove/test_*.py)))

prove: env-dev servers ## Run the full-size tests and write docs/proof.md (ONLY=chaos, SEED=… to repeat a run)
	@for part in $(ONLY); do [ -f "tests/prove/test_$$part.py" ] || { \
		echo "Unknown part $$part; available: $(PARTS)" >&2; exit 2; }; done
	@rm -rf .cache/proof
	@SEED=$(SEED) $(BIN)/python -m pytest -o timeout=3600 $(ARGS) \
		$(if $(ONLY),$(ONLY:%=tests/prove/test_%.py),tests/prove); \
		code=$$?; $(BIN)/python scripts/write_proof.py && exit $$code

bench: env-dev ## Run the benchmarks and write docs/performance.md (ARGS="peers --quick")
	@$(BIN)/python -m bench $(ARGS)

picture: env-dev servers ## Redraw the pictures of the documentation from real runs
	@$(BIN)/python -m scripts.picture
	@$(BIN)/python -m scripts.dashboard_picture
	@$(BIN)/python -m scripts.console_picture

lock: env-dev ## Recompile the lock files (UPGRADE=--upgrade for newer releases)
	@$(COMPILE) $(UPGRADE) --extra tui --extra openai --extra anthropic pyproject.toml requirements/build.in -o requirements/run.txt
	@$(COMPILE) $(UPGRADE) --extra tui --extra openai --extra anthropic --extra code --extra otel --extra search --extra xlsx --extra pinyin pyproject.toml requirements/build.in requirements/dev.in \
		-c requirements/run.txt -o requirements/dev.txt
	@for name in $(basename $(wildcard requirements/adapters/*.in)); do \
		$(COMPILE) $(UPGRADE) pyproject.toml requirements/build.in "$$name.in" -o "$$name.txt" || exit 1; done
	@for name in $(basename requirements/site.in $(wildcard requirements/servers/*.in requirements/peers/*.in requirements/apart/*.in)); do \
		$(COMPILE) $(UPGRADE) "$$name.in" -o "$$name.txt" || exit 1; done
	@$(PYTHON) scripts/environment.py share
	@for folder in tests/real/npm tests/real/conformance tests/prove/clients requirements/pyright \
		requirements/peers/mcporter; do \
		npm install --prefix "$$folder" --package-lock-only --ignore-scripts --silent || exit 1; done

docs: env-run ## Build the documentation site in build/site (offline once installed)
	@$(BIN)/python -m scripts.build_site

dist: env-dev ## Build the wheel, the source archive, the bill of materials and the manual page in dist/
	@rm -rf dist
	@$(BIN)/uv build --no-build-isolation --python $(BIN)/python --out-dir dist .
	@$(BIN)/python scripts/sbom.py dist/sbom.json
	@$(BIN)/python scripts/write_man.py dist/dragoman.1

clean: ## Remove environments, caches and build output
	rm -rf .venv .cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ── Set-up steps of the targets above

python-found:
	@[ -n "$(PYTHON)" ] || { \
		echo 'dragoman needs Python 3.11 or newer, and none was found: make run PYTHON=/path/to/python3' >&2; exit 1; }

env-run: python-found
	@$(PYTHON) scripts/environment.py run

env-dev: python-found
	@$(PYTHON) scripts/environment.py dev

servers: python-found
	@$(PYTHON) scripts/install_servers.py
