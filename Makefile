# The two commands of the README, and what a developer needs besides.
#
#   make demo    environment, installation, and the blur of a photograph through the whole way
#   make serve   the same environment, and the compile service at http://127.0.0.1:8080
#   make test    the same environment with the developer's tools, and every test this machine can run; of
#                the expensive ones that have to run one in eight, but all in CI (CI=true)
#   make quick   what an edit needs of these: the tests of the rooms that changed
#   make verified  every test that need not run again with what tests/verified.txt lists; it writes that
#   make nightly  every test anew, and those that take minutes: load and fuzz of the service, all mutants
#   make check   formatting, lint and types
#   make digests  which programs' emitted code is not the recorded one; UPDATE="why it may" records it
#   make docs    the pages of docs/ as a site, in docs/_build/html

# The first of these that is a Python of at least 3.11; else python3, which is then told that it will not do.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; done; echo python3)
# Modules are compiled once, for all processes: pip is told not to, and some environments keep Python
# from writing what it compiled.
VENV := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/.venv/pyc" .venv/bin/python
SOURCES := pyproject.toml requirements/install.py $(wildcard requirements/*.lock cpp/* cpp/*/*)
# Two workers on two cores; `make test WORKERS=0` runs in one process. A worker has tests of the same
# files, which share what they compiled, until it is idle and takes from the other's.
WORKERS ?= 2
TESTS ?= tests

.PHONY: help demo serve test quick verified nightly check digests docs clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

.venv/run.stamp: $(SOURCES)
	@$(PYTHON) requirements/install.py run
	@touch $@

.venv/dev.stamp: $(SOURCES)
	@$(PYTHON) requirements/install.py dev
	@touch $@ .venv/run.stamp

demo: .venv/run.stamp
	@$(VENV) -m casestudies demo

# Options: `make serve SERVE="--port 9000 --workers 4"`.
serve: .venv/run.stamp
	@exec $(VENV) -m selector serve $(SERVE)

PYTEST = SELECTOR_CHECK=1 $(VENV) -m pytest -n $(WORKERS) --dist worksteal

test: .venv/dev.stamp
	@$(PYTEST) $(if $(CI),,--sample 8) $(TESTS)

quick: .venv/dev.stamp
	@set -f; $(PYTEST) -m "not slow and not nightly" $$($(VENV) tests/quick.py)

verified: .venv/dev.stamp
	@$(PYTEST) -m verified --update-verified tests

nightly: .venv/dev.stamp
	@SELECTOR_NIGHTLY=1 $(PYTEST) $(TESTS)
	@$(VENV) tests/service/load.py --seconds 600
	@$(VENV) tests/service/fuzz.py --count 100000

check: .venv/dev.stamp
	@$(VENV) -m ruff check . && $(VENV) -m ruff format --check . && $(VENV) -m pyright

digests: .venv/dev.stamp
	@$(VENV) tests/digests.py --workers $(WORKERS) $(if $(UPDATE),--update "$$UPDATE")

docs: .venv/dev.stamp
	@$(VENV) -m sphinx -W --keep-going -q -b html -d docs/_build/trees docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	@rm -rf build dist docs/_build .pytest_cache .ruff_cache
