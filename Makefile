# Every target sets up what it needs; see `make help`.

PYTHON ?= python3
VENV := .venv
# Called as modules: the scripts in .venv/bin would name the folder that it was made in.
RUN := $(VENV)/bin/python -m
# As many tests at once as there are processors; tests/conftest.py says which go together.
PARALLEL := -n auto
# Made last, when everything is installed.
READY := $(VENV)/.ready

# What Python compiled is kept, whatever the environment says: tests start many processes, and each imports edgedeploy.
export PYTHONDONTWRITEBYTECODE :=

# Some tests alone: make test TESTS=tests/unit/test_cli.py
TESTS ?=

# Networks and images that may lie beside the checkout; they serve the demo without a network connection.
MIRRORS := $(wildcard ../shared/models ../shared/images)
empty :=
space := $(empty) $(empty)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-all fresh-machine virtual-boards drawing opencl predictions lint wheel docs docs-site clean

help:  ## Say what there is to make.
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r target text; do \
	    printf 'make %-14s %s\n' "$$target" "$$text"; done

setup: $(READY)  ## Install edgedeploy and its tools into .venv.

$(READY): pyproject.toml scripts/setup.sh
	scripts/setup.sh "$(PYTHON)" "$(VENV)"
	touch $@

demo: export EDGEDEPLOY_MODELS ?= $(subst $(space),:,$(MIRRORS))
demo: $(READY)  ## Show the best network whose files can be had, such as RetinaFace, here and on virtual Raspberry Pis.
	$(VENV)/bin/python scripts/demo.py

test: lint virtual-boards drawing opencl predictions  ## Check style and types, and run all tests but the slow ones.
	$(RUN) pytest $(PARALLEL) -m "not slow" $(TESTS)

# pytest's exit code 5 says that none of the tests which were named is of this part.
test-fast: $(READY)  ## Run the tests that generate no code.
	$(RUN) pytest $(PARALLEL) -m "not slow and not compiles" $(TESTS) $(if $(TESTS),|| [ $$? = 5 ])

test-all: lint virtual-boards drawing opencl predictions  ## Run the slow tests, too, and the newest other Python; goes on where it stopped.
	scripts/test_all.sh

fresh-machine: virtual-boards  ## Make demo and test on bare Debian 12 and 13, as root and as another user; needs root, takes over an hour.
	scripts/fresh_machine.sh

# What Debian has for them: root installs what is missing, others are told.
virtual-boards drawing opencl predictions:
	@scripts/system_packages.sh $@

lint: $(READY)  ## Check style and types.
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy

wheel: $(READY)  ## Build the wheel into dist/, with the agents of all profiles.
	$(VENV)/bin/python scripts/ship_agents.py build/agents
	$(RUN) build --wheel --no-isolation

docs: $(READY)  ## Write docs/commands.md anew.
	$(VENV)/bin/python scripts/document_commands.py

docs-site: $(READY)  ## Write the documentation as a site into build/site; its links are checked.
	$(RUN) pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(RUN) mkdocs build --quiet
	@echo 'read it, with its search: python3 -m http.server --bind 127.0.0.1 --directory build/site'

clean:  ## Remove .venv, dist/ and everything else that was made here.
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
