# Each target sets up everything it needs in .venv, once; only Python 3.10 or newer is required.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed
CLASSES := .venv/spark-classes.jsa
KCLPY := .venv/sdists/amazon_kclpy-3.2.0.tar.gz
ARGS ?=
SECONDS ?= 60
MINUTES ?= 20
SEED ?=

.PHONY: demo active-users test simulate soak interop-emulators lint bench format lock clean

demo: $(SETUP)
	@$(BIN)/python -m examples.flights $(ARGS)

active-users: $(SETUP)
	@$(BIN)/python -m examples.active_users $(ARGS)

test: $(SETUP) $(KCLPY) $(CLASSES)
	$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder $(ARGS)

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

simulate: $(SETUP)
	@$(BIN)/python -m tests.simulation --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(SETUP)
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Needs Node.js, Java and Maven, and says so where there is none.
interop-emulators: $(SETUP)
	@$(BIN)/python -m tests.interop $(ARGS)

bench: $(SETUP)
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(SETUP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(SETUP): pyproject.toml constraints.txt
	@echo "Setting up .venv (once) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed.")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Its sample application is tested; a wheel cannot be built of it without a Maven repository.
$(KCLPY): $(SETUP)
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
	    --no-binary amazon-kclpy --dest $(@D) amazon-kclpy==3.2.0
	@touch $@

# What Spark's JVMs load, so that tests start them faster.
$(CLASSES): $(SETUP)
	@$(BIN)/python -m tests.spark.class_archive $@

# Writes constraints.txt anew, for every supported Python at once.
lock:
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --all-extras \
	    --no-annotate --no-header --upgrade pyproject.toml -o constraints.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
