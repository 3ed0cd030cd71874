# Everything runs in .venv, which `make` builds from this repository's own files.
PYTHON ?= python3
BIN := .venv/bin
RUFF = $(BIN)/ruff check . && $(BIN)/ruff format --check .
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/torch_srelu/ops/*/native/*)

.PHONY: demo test test-slow test-all lint bench clean help

demo: .venv/lab  ## train rivals side by side on real data and print the table
	$(BIN)/srelu compare

# Pyright, which keeps one core busy for a minute, works beside pytest. Tests start many Pythons:
# what one of them has compiled, the others read.
test: .venv/ready  ## ruff, pyright and the quick tests: under 5 minutes on 2 cores
	$(RUFF)
	@echo $(BIN)/pytest, and pyright beside it; \
	$(BIN)/pyright >.venv/pyright.txt & types=$$!; \
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest; tests=$$?; \
	wait $$types; types=$$?; cat .venv/pyright.txt; \
	exit $$((tests | types))

test-slow: .venv/ready  ## the other tests: compiled kernels, trainings, a browser
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -m slow

test-all: test test-slow  ## all tests: under 25 minutes

lint: .venv/ready  ## ruff and pyright alone
	$(RUFF)
	$(BIN)/pyright

bench: .venv/lab  ## the operator against its rivals, on the device that is there, to runs/bench
	$(BIN)/python benchmarks/bench_op.py

clean:  ## remove what make has built
	rm -rf .venv build src/*.egg-info src/torch_srelu/ops/*/_*.so

help:  ## what there is to make; without a name, make demo
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1	/p' $(MAKEFILE_LIST) | expand -t 8

INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.venv/lab: $(SOURCES)  # what a user needs
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[lab]'
	touch $@

.venv/ready: .venv/lab  # what the tests need besides
	$(INSTALL) -e '.[lab,vision,text,lightning,export,dev]'
	touch $@
