# make demo        set up, optimize one example, show the verdict, the speed-ups and the emitted file
# make test        set up, run the tests
# make lint        ruff, formatting, types
# make bench-cpu   the CPU yardstick: eight pointwise operators on 32 M elements
# make suite-cpu   some fifty small problems on the CPU, with a page: out/suite-cpu/report.html; goes on where it was
# make clean       remove what was made here, except .venv
# make distclean   .venv too

PYTHON ?= python3
DEMO ?= examples/pointwise_chain.py
PYTEST_ARGS ?=
SUITE_ARGS ?=

# Found before the path changes: .venv is made from this Python, and may borrow its packages.
BASE_PYTHON := $(shell command -v $(PYTHON))
SET_UP := $(BASE_PYTHON) scripts/set_up.py
# ninja is a program as well as a package, and torch looks for it on the path.
export PATH := $(CURDIR)/.venv/bin:$(PATH):$(dir $(BASE_PYTHON))

# Three processes where pytest-xdist is there, since the tests of the judge wait more than they compute; each with whole
# files: what a file sets up is set up once.
IN_PARALLEL = $$(.venv/bin/python -c "import xdist" 2>/dev/null && echo "-n 3 --dist loadfile")

.PHONY: help demo test lint bench-cpu suite-cpu clean distclean
.DEFAULT_GOAL := help

help:
	@sed -n '/^$$/q; s/^# //p' Makefile

demo:
	@$(SET_UP) run
	.venv/bin/python -m kernelwright optimize $(DEMO) --budget 3m -o out/$(notdir $(DEMO))

test:
	@$(SET_UP) test
	.venv/bin/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS)

lint:
	@$(SET_UP) lint
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m mypy --strict kernelwright

bench-cpu:
	@$(SET_UP) run
	.venv/bin/python -m kernelwright optimize benchmarks/problems/pointwise_chain_32m.py --device cpu -o out/pointwise_chain_32m.py
	$(MAKE) suite-cpu

# A problem that is wrong fails the target; the rows and the page of all the others are there.
suite-cpu:
	@$(SET_UP) run
	.venv/bin/python -m kernelwright suite run benchmarks/suite --device cpu --effort quick --baselines eager $(SUITE_ARGS) -o out/suite-cpu

clean:
	rm -rf out build-output dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
