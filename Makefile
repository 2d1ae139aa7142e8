# Each target sets up .venv by itself when it is missing or older than pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
# Exact versions, for whoever wants what the developers have: make test CONSTRAINTS=constraints.txt
CONSTRAINTS ?=
INSTALL := -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
# Torch lives apart: its usual wheels carry gigabytes. TORCH="..." takes another build.
TORCH ?= torch==2.13.0
TORCH_VENV := .venv-torch
TORCH_STAMP := $(TORCH_VENV)/.installed
# So do the tools of the documentation.
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed

.PHONY: demo test lint bench docs refresh validate fit mutants soak fuzz test-lowest test-newest sbom release-notes clean test-torch

$(CORE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "perfmodel needs Python 3.11 or newer; set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once)" >&2
	@$(BIN)/python $(INSTALL) -e .
	@touch $@

$(STAMP): $(CORE)
	@echo "adding the tools of the tests to $(VENV) (once)" >&2
	@$(BIN)/python $(INSTALL) -e ".[test,web,dask]"
	@touch $@

demo: $(CORE)  ## predict a built-in job, print the answer, write perfmodel-demo.html
	@$(BIN)/perfmodel demo

test: $(STAMP)  ## the whole suite
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal

$(TORCH_STAMP): pyproject.toml
	@test -x $(TORCH_VENV)/bin/python || $(PYTHON) -m venv $(TORCH_VENV)
	@echo "setting up $(TORCH_VENV) (once)" >&2
	@$(TORCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" -e ".[test,torch]"
	@touch $@

test-torch: $(TORCH_STAMP)  ## the tests that need torch: traced modules, measurements with gloo on two processes
	@$(TORCH_VENV)/bin/python -m pytest -q tests_torch

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

bench: $(STAMP)  ## timings: benchmarks, not tests
	@$(BIN)/python -m pytest -q benchmarks --benchmark-enable --benchmark-only -p no:xdist

validate: $(STAMP)  ## predictions against every measured run; writes validation/REPORT.md
	@$(BIN)/python validation/report.py

fit: $(STAMP) $(DOCS_STAMP)  ## refit the beliefs, validate, renew pages and baseline; continues where it stopped (AGAIN=--again: all of it)
	@nice -n 10 $(BIN)/python validation/refit.py --pages $(CURDIR)/$(DOCS_VENV)/bin/python $(AGAIN)

mutants: $(STAMP)  ## small faults in physics, beliefs and training: how many do their own tests catch
	@nice -n 10 $(BIN)/python tests/mutation/run.py

JOBS ?= 20000
soak: $(STAMP)  ## relations that hold for any job, on JOBS=20000 random ones (an hour or two)
	@nice -n 10 $(BIN)/python tests/properties/soak.py $(JOBS)

SECONDS ?= 60
ENTRIES ?=
$(VENV)/.fuzz: $(STAMP)
	@$(BIN)/python $(INSTALL) -e ".[fuzz]"
	@touch $@

fuzz: $(VENV)/.fuzz  ## damaged input at every door, guided by coverage: SECONDS=60 each, or ENTRIES="jobs traces" alone
	@nice -n 10 $(BIN)/python tests/fuzz/run.py $(SECONDS) $(ENTRIES)

# The lowest versions that pyproject.toml declares, and the newest that there are, each in an environment of its own.
LOWEST_VENV := .venv-lowest
NEWEST_VENV := .venv-newest
PARTS ?= tests/cli tests/specs tests/decide tests/training tests/report tests/web tests/fuzz
test-lowest: pyproject.toml  ## PARTS of the suite on the lowest versions that pyproject.toml declares
	@test -x $(LOWEST_VENV)/bin/python || $(PYTHON) -m venv $(LOWEST_VENV)
	@$(PYTHON) tests/supply/lowest.py > $(LOWEST_VENV)/lowest.txt
	@$(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST_VENV)/lowest.txt -e ".[test,web,dask,load]"
	@$(LOWEST_VENV)/bin/python -m pytest -q -W default $(PARTS)  # old libraries warn of newer ones

test-newest: pyproject.toml  ## PARTS of the suite on the newest versions, those before their release among them
	@test -x $(NEWEST_VENV)/bin/python || $(PYTHON) -m venv $(NEWEST_VENV)
	@$(NEWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --pre --upgrade-strategy eager -e ".[test,web,dask,load]"
	@$(NEWEST_VENV)/bin/python -m pytest -q -W default $(PARTS)

constraints.txt: pyproject.toml  ## exact versions of a fresh environment, for CONSTRAINTS=constraints.txt
	@rm -rf .venv-exact && $(PYTHON) -m venv .venv-exact
	@.venv-exact/bin/python -m pip install --quiet --disable-pip-version-check -e ".[test,web,dask,load]"
	@.venv-exact/bin/python -m pip freeze --disable-pip-version-check --exclude-editable > $@
	@rm -rf .venv-exact

sbom: pyproject.toml  ## what the package brings along, as CycloneDX: dist/perfmodel.cdx.json
	@mkdir -p dist && rm -rf .venv-exact .venv-sbom && $(PYTHON) -m venv .venv-exact && $(PYTHON) -m venv .venv-sbom
	@.venv-exact/bin/python -m pip install --quiet --disable-pip-version-check ".[web]"
	@.venv-sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	@.venv-sbom/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml -o dist/perfmodel.cdx.json .venv-exact/bin/python
	@rm -rf .venv-exact .venv-sbom

$(DOCS_STAMP): pyproject.toml
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	@echo "setting up $(DOCS_VENV) (once)" >&2
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

docs: $(DOCS_STAMP)  ## the documentation site, warnings as errors, in docs/_build/html
	@$(DOCS_VENV)/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

refresh: $(DOCS_STAMP)  ## write again what README, docs and notebooks show, from the tool
	@$(DOCS_VENV)/bin/python docs/refresh_readme.py

release-notes: $(STAMP)  ## collect changelog.d into CHANGELOG.md (DRAFT=--draft prints it)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[release]"
	@$(BIN)/python -m towncrier build --yes $(DRAFT) --version "$$($(BIN)/perfmodel --version | cut -d' ' -f2)"

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest .venv-exact .venv-sbom .fuzz $(TORCH_VENV) $(DOCS_VENV) build dist docs/_build docs/_generated docs/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks
