# Every target sets up all that it needs in .venv by itself. `make PYTHON=python3.12 test` chooses the interpreter.
PYTHON ?= python3
# Many tests wait for other processes, or for time to pass: two workers leave half of two CPUs idle.
JOBS ?= 4
ARGS ?=

BIN := .venv/bin
CHOSEN := $(if $(filter file default undefined,$(origin PYTHON)),,--chosen)
SETUP := $(PYTHON) scripts/setup_env.py $(CHOSEN)
# A worker that hangs is ended by pytest's fault handler; starting another would hide which test it was.
XDIST := -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0
PYTEST := $(BIN)/python -m pytest $(XDIST)
COMPILED := PYTHONPATH=$(CURDIR)/build/compiled

.DEFAULT_GOAL := help
.PHONY: help setup dev demo watch check test test-all test-slow test-slow-files head-start lint types mutants bench soak fuzz audit sbom lock docs test-long format clean wheel wheels deb install-trial container-trial release site test-compiled

help: ## these words
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

demo: ## two nodes, two rails each: move a 1 GiB file over both; then cut one rail on the way (ARGS="--file F")
	@$(SETUP)
	@PYTHONPATH=$$($(BIN)/python scripts/compiled.py --found) $(BIN)/ulnet demo $(ARGS)

watch: dev ## the dashboard on two nodes in network namespaces, with traffic and a rail that is cut every 20 s (root; ARGS="--listen ADDRESS:PORT")
	$(BIN)/python scripts/watch.py $(ARGS)

check: ## a quick set of tests for every day, after ruff: codecs, core, configuration, calls (ARGS="-k put")
	@$(SETUP) dev
	$(BIN)/ruff check
	$(PYTEST) -q --brief $(addprefix tests/,nid wire core control dlc host capture) $(ARGS)

test: ## lint, types, import contracts, then all tests but those of the slow files (ARGS="tests/core -k put": these)
	@$(SETUP) dev --debian dev
	@$(MAKE) --no-print-directory lint types
	$(PYTEST) $(if $(strip $(ARGS)),$(ARGS),--part quick)

# Tests leave CPUs idle at times: the compiler works then. Where that fails, test-compiled tries again, and tells.
test-slow: ## the tests of the slow files: long simulations, demos, benchmarks, whole daemons (tests/support/order.py)
	@$(SETUP) dev --debian dev
	@$(MAKE) --no-print-directory -j2 test-slow-files head-start

test-slow-files:
	$(PYTEST) --part slow

test-all: ## all tests but the long ones, on both builds: what CI runs
	@$(MAKE) --no-print-directory test ARGS=
	@$(MAKE) --no-print-directory test-slow
	@$(MAKE) --no-print-directory test-compiled

head-start:
	@nice $(BIN)/python scripts/compiled.py --quick > /dev/null 2>&1 || true

# The rooms whose code is compiled, and what is built on them. Nothing where no compiler is; in CI that is a failure.
test-compiled: ## the tests of the compiled build
	@$(SETUP) dev --debian dev
	@$(BIN)/python scripts/compiled.py --quick $(if $(filter true 1,$(CI)),--must)
	@test ! -e build/compiled/STAMP || ULNET_BUILD=compiled $(COMPILED) \
		$(PYTEST) -o "pythonpath=tests scripts benchmarks" $(addprefix tests/,core control lnd node wire rpc sim e2e) $(ARGS)

lint: dev ## ruff, and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo --no-cache

types: dev ## mypy, strict
	$(BIN)/mypy

mutants: dev ## plant mistakes: does each requirement's tests find them? An hour or more (ARGS="dyn-010 dbg-025": those of some)
	$(BIN)/python scripts/mutants.py $(ARGS)

bench: ## measure ulnet beside C, plain sockets, pyzmq, grpcio, Open MPI and MPTCP; writes docs/benchmarks.md (ARGS=--quick)
	@$(SETUP) dev bench --debian bench
	@$(BIN)/python scripts/compiled.py
	$(BIN)/python benchmarks/run.py $(ARGS)

soak: dev ## an hour of traffic while links fail at random: nothing lost, twice or leaked (root; ARGS="--minutes 5")
	$(BIN)/python scripts/soak.py $(ARGS)

fuzz: ## a minute of hostile bytes for all that is read from others (atheris, where there is one; ARGS="--seconds 600")
	@$(SETUP) dev fuzz || $(SETUP) dev
	$(BIN)/python scripts/fuzz.py $(ARGS)

audit: ## look for known weaknesses of the packages that CI installs (pip-audit)
	@$(SETUP) dev audit
	$(BIN)/pip-audit --disable-pip --require-hashes --requirement packaging/locked/dev-3.11.txt

sbom: ## what .venv has, as CycloneDX, in dist/ulnet.cdx.json
	@$(SETUP) dev audit
	mkdir -p dist
	$(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-file dist/ulnet.cdx.json

lock: ## write anew which files CI installs, by hash (with Python 3.11)
	@$(SETUP) dev audit
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --extra dev --no-header \
		--no-emit-index-url --no-emit-find-links --output-file packaging/locked/dev-3.11.txt pyproject.toml

docs: dev ## write docs/requirements.md anew from the tests' marks, man pages, and the DLC reference
	$(BIN)/python scripts/requirements_page.py
	$(BIN)/python scripts/man_pages.py
	$(BIN)/python scripts/dlc_page.py

site: ## the manual as a site, in build/site; a broken link is an error
	@$(SETUP) site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

test-long: ## all tests, with more examples and the long ones
	@$(SETUP) dev --debian dev
	$(PYTEST) --long $(ARGS)

format: dev ## let ruff mend layout and import order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

wheel: dev ## compile parts of the package with mypyc: a wheel in dist/, unpacked in build/compiled
	$(BIN)/python scripts/compiled.py --wheel

wheels: dev ## all wheels into dist/: pure, and compiled for each Python on PATH; each tried in a fresh venv (ARGS="pure 3.12")
	$(BIN)/python scripts/wheels.py $(ARGS)

deb: ## a Debian package into dist/ (Debian 12 or later; ARGS="--wheel FILE" packages a compiled wheel)
	@$(SETUP) --debian deb
	$(BIN)/python scripts/deb.py $(ARGS)

install-trial: ## docs/install.md in fresh Debians that systemd boots: the Debian package's whole life, and pip (root)
	@$(SETUP) --debian install-trial
	$(BIN)/python scripts/install_trial.py $(ARGS)

container-trial: ## packaging/Containerfile, built and run by Podman in network namespaces (root)
	@$(SETUP) --debian container-trial
	$(BIN)/python scripts/container_trial.py $(ARGS)

test-verbs: dev ## o2ib on soft-RoCE, in two guests that QEMU emulates: Debian's kernel, rdma-core (root, 5 to 10 minutes)
	$(PYTHON) scripts/verbs_bed.py
	ULNET_VERBS=1 $(BIN)/python -m pytest -p no:xdist -o faulthandler_timeout=0 -s tests/verbs $(ARGS)

release: ## VERSION=0.2.0: write the version, date the changelog, commit and tag; a tree with changes is refused
	@$(PYTHON) scripts/release.py $(VERSION)

setup: ## make .venv with the package in it
	@$(SETUP)

dev: ## the same with the tools for tests
	@$(SETUP) dev

clean: ## remove .venv and everything made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
