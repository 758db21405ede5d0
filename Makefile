# The one entry to everything: `make demo` and `make test` need only Python 3.11+, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TESTS ?= tests
WORKERS ?= auto

# Where the demo keeps its database. Root's PostgreSQL runs as another user, who may not enter root's own folders.
DEMO := $(if $(filter 0,$(shell id -u)),/var/lib/weft-demo,$(CURDIR)/.weft/demo)

# Without the compiled files every command would compile all of Weft anew; and programs print as they do elsewhere.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.PHONY: install demo test suite check bench bench-peers chaos far mutate ranges docs lock clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $(STAMP)

demo: install
	@env -u WEFT_DATABASE_URL -u POSTGRES_HOST WEFT_HOME="$(DEMO)" $(BIN)/weft demo --renew

# The checks take one core, and the tests wait more than they compute: both at once.
test: install
	@$(MAKE) --no-print-directory -j 2 check suite

suite: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python -m bench

bench-peers: install
	$(BIN)/python -m bench --peers

chaos: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/crash tests/server/test_conformance.py --campaign=long --timeout=3600
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests --ignore=tests/crash --deep -m deep

far: install
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/engine --through-a-server

mutate: install
	$(BIN)/python -m tests.mutation

ranges: install
	$(BIN)/python tests/ranges.py

docs: install
	$(BIN)/python -m docs.generate

lock: install
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --group pyproject.toml:dev --group pyproject.toml:build pyproject.toml -o requirements.lock

clean:
	-@[ ! -d "$(DEMO)" ] || WEFT_HOME="$(DEMO)" $(BIN)/weft db stop
	rm -rf "$(DEMO)" $(VENV) .weft .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
