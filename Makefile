# Every target sets up what it needs: a machine with Python 3.11+, make and git is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEV    := $(VENV)/.ready-to-develop
PEERS  := .venv-peers
SUDO   := $(if $(filter-out 0,$(shell id -u)),sudo)

.PHONY: train test check format docs bench-peers bench-sb3 faults browser setup clean

train: setup            ## set up, then learn the default task and draw its learning curve
	$(BIN)/m2ac train

test: $(DEV)            ## set up, then run the tests (ARGS="-k mask" picks some)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(DEV)           ## the gate: format, lint, types, import contracts, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) test

format: $(DEV)          ## put the code into the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(DEV)            ## the site, into build/docs; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going --nitpicky --quiet -b html docs build/docs

bench-peers: $(DEV) $(PEERS)/.ready  ## time other libraries beside m2ac (ARGS="--quick" for a first look)
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-sb3: $(DEV) $(PEERS)/.ready    ## learn PPO and SAC beside stable-baselines3
	$(BIN)/python -m benchmarks.beside_sb3 $(ARGS)

faults: $(DEV)          ## make go wrong what may (N=0.1 for a tenth of it, ARGS="--only kills" for one row)
	$(BIN)/python -m faults --scale $(or $(N),1) $(if $(N),,--json results/faults.json) $(ARGS)

browser:                ## install Debian's Chromium, in which tests/test_report_browser.py looks at the report's page
	$(SUDO) apt-get update
	$(SUDO) apt-get install -y --no-install-recommends chromium

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "m2ac needs Python 3.11 or newer, found " + sys.version.split()[0] + "; call make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $(READY)

# What the tests and the tools need is twice as much again, so a first run does not wait for it.
$(DEV): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(DEV)

$(PEERS)/.ready: benchmarks/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mbrl==0.2.0
	touch $@

clean:                  ## remove the environments and caches, never runs/
	rm -rf $(VENV) $(PEERS) build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
