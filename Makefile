# Everything runs in .venv, which `make` builds from this repository's own files.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := lab,vision,text,lightning,export,dev
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/torch_srelu/ops/native/*)

.PHONY: demo test lint bench clean

demo: .venv/ready  ## train rivals side by side on real data and print the table
	$(BIN)/srelu compare

test: lint  ## ruff, pyright and pytest
	$(BIN)/pytest

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: .venv/ready  ## the operator against its rivals, on the device that is there
	$(BIN)/python benchmarks/bench_op.py

clean:
	rm -rf .venv build src/*.egg-info src/torch_srelu/ops/_native.*

.venv/ready: $(SOURCES)
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@
