# Headwater's targets. Everything runs from .venv, which `make setup` builds; nothing is installed
# by hand, nothing is written outside this folder but pip's, apt's and Maven's own caches.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.headwater-setup
WORKERS ?= 2
FOLDERS := platform tiered_storage broker_service spark_integration jobs tests bench
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba
# Bytecode is kept, also where the environment says otherwise: each test process would compile anew.
unexport PYTHONDONTWRITEBYTECODE
export HEADWATER_JARS := $(CURDIR)/.cache/jars

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Build .venv with everything the demo, tests and benches need (repeats are instant)

$(STAMP): pyproject.toml .ci/setup
	@PYTHON="$(PYTHON)" .ci/setup

demo: setup ## The whole path on a real year of flights: brokers in Spark, Delta, proofs (about 6 min; ARGS=--secure, too)
	@$(BIN)/python jobs/flights_demo.py $(ARGS)

city: setup ## A day of a city's cameras: six flows over topics and Delta, proof (judged: under 8 min; ARGS=--keep)
	@$(BIN)/python jobs/city_demo.py --within 480 $(ARGS)

test: setup check unit integration ## Everything: check, unit and integration tests (about half an hour on two cores)

check: setup ## ruff, mypy, import contracts, house rules, two at a time
	@$(MAKE) --output-sync=target -j 2 types rules style

style: setup ## ruff and the import contracts
	@$(BIN)/ruff check $(FOLDERS)
	@$(BIN)/ruff format --check -q $(FOLDERS)
	@$(BIN)/lint-imports --no-cache | tail -n 3

types: setup ## mypy
	@$(BIN)/mypy

rules: setup ## The house rules (tests/tidy)
	@$(BIN)/python -m pytest -q tests/tidy

unit: setup ## Tests without processes, sockets or Spark (ARGS= to pytest, WORKERS=2 processes)
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests --ignore tests/integration \
	  --ignore tests/tidy -m "not long" $(ARGS)

integration: setup ## Tests with real processes, clients and Spark (ARGS= to pytest)
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests/integration \
	  -m "not long and not integrations" $(ARGS)

long: setup ## The tests that `make test` leaves out: minutes each, or a proof with other parameters
	@$(BIN)/python -m pytest -q tests --ignore tests/tidy -m long $(ARGS)

integrations: setup ## Flink, Storm, Hadoop, Streams, Connect, clients in Java, JavaScript, Go (JOB_KILLS=20 BROKER_KILLS=10)
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.parts || echo "what cannot be had is skipped"
	@HEADWATER_JOB_KILLS=$(JOB_KILLS) HEADWATER_BROKER_KILLS=$(BROKER_KILLS) \
	  $(BIN)/python -m pytest -q tests/integration -m integrations $(ARGS)

claims: setup ## What is claimed for Kafka, measured here; writes docs/claims.md (ARGS="--only rate")
	@PYTHONPATH=tests:bench $(BIN)/python bench/claims.py $(ARGS)

suite-kafka-python: setup ## kafka-python's own integration tests (ARGS="-- -k transactional")
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.kafka_python $(ARGS)

suite-copier: setup ## Kafka's TransactionalMessageCopier under kills (ARGS="--copier-kills 20 --broker-kills 10")
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.copier $(ARGS)

suite-clients: setup ## Each client's transactions, feature by feature; writes the table of docs/clients.md
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.client_features $(ARGS)

suite-groups: setup ## Each client in both group protocols and in share groups; writes the tables of docs/clients.md
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.group_features $(ARGS)

suite-mechanisms: setup ## Each client with each SASL mechanism and mTLS; writes the table of docs/clients.md
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.mechanisms $(ARGS)

suite-recipes: setup ## The exactly-once recipes under kills (ARGS="--kills 20 --broker-kills 5")
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.recipes $(ARGS)

suite-spark: setup ## Spark's exactly-once writes: a crash at each step (ARGS="--minutes 15", "--plant verdict-ignored")
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.spark_matrix $(ARGS)

suite-rights: setup ## Every request with every right, against Apache Kafka and Headwater: replies that differ
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.rights_matrix $(ARGS)

suite-registry: setup ## The same requests to Apicurio's registry and to ours (ARGS=--write: into the docs)
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.registry_oracle $(ARGS)

suite-secrets: setup ## Search what a secure cluster leaves for its secrets (ARGS="--dir D --also FOLDER")
	@PYTHONPATH=tests:bench $(BIN)/python -m suites.secret_search $(ARGS)

dist: setup ## Build sdist and wheel into dist/, and check them in an empty environment (ARGS=--quick)
	@PYTHONPATH=tests $(BIN)/python -m suites.distribution $(ARGS)

docs: setup ## Write the tables of docs/ from the code (a test fails when they are stale)
	@$(BIN)/python tests/docs_pages.py

sim: setup ## Whole clusters on virtual time under faults (SEEDS=100 FROM=0; SEED=7: its story)
	@PYTHONPATH=tests $(BIN)/python -m sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100) \
	  --from $(or $(FROM),0)) $(ARGS)

soak: setup ## Kill, cut, starve and wipe a real cluster under load, then judge (MINUTES=30 SEED=n)
	@PYTHONPATH=tests $(BIN)/python -m soak.run --minutes $(or $(MINUTES),30) $(SEED:%=--seed %) $(ARGS)

docs-tools: setup ## Run all of Kafka's own tools against three brokers; writes docs/kafka-tools.md
	@PYTHONPATH=tests:bench $(BIN)/python tests/kafka_tools_page.py $(ARGS)

fuzz: setup ## Spoiled frames and logins against a broker, batches against all readers (FRAMES= LOGINS= BATCHES= SEED=)
	@PYTHONPATH=tests:bench $(BIN)/python -m fuzz --frames $(or $(FRAMES),100000) \
	  --batches $(or $(BATCHES),20000) --logins $(or $(LOGINS),1000000) --seed $(or $(SEED),1) $(ARGS)

bench-kafka: setup ## Raw and client throughput against Apache Kafka on this machine
	@$(BIN)/python bench/bench_kafka.py $(ARGS)

bench-sdk: setup ## The SDK's two faces against confluent-kafka and aiokafka (ARGS="--rounds 5")
	@$(BIN)/python bench/bench_sdk.py $(ARGS)

bench-tls: setup ## TLS against Apache Kafka's: produce, fetch, mTLS handshakes (ARGS="--only fetch")
	@PYTHONPATH=tests:bench $(BIN)/python bench/bench_tls.py $(ARGS)

bench-rights: setup ## CPU time of a lone Produce and Fetch, without and with ACLs
	@PYTHONPATH=tests:bench $(BIN)/python bench/lone_requests.py $(ARGS)

bench-mirror: setup ## The mirror against MirrorMaker 2: records a second and CPU (ARGS="--pairs 1")
	@$(BIN)/python bench/bench_mirror.py $(ARGS)

bench-tier: setup ## Topic to Delta, by the service, against Spark's own Kafka-to-Delta stream
	@$(BIN)/python bench/bench_spark.py tier $(ARGS)

bench-typed: setup ## JSON topic to typed Delta table against Spark's from_json (ARGS="--rows 2000000")
	@$(BIN)/python bench/bench_typed.py $(ARGS)

bench-tiering: setup ## Tiering: freshness, trickle, idle memory, cold reads, many files, union read, a new installation (ARGS="--only cold")
	@$(BIN)/python bench/bench_tiering.py $(ARGS)

bench-source: setup ## The Spark source against spark-sql-kafka
	@$(BIN)/python bench/bench_spark.py source $(ARGS)

bench-spark: setup ## Source, exactly-once sink and micro-batches against spark-sql-kafka on Kafka
	@$(BIN)/python bench/bench_spark.py spark $(ARGS)

bench-scale: setup ## Start, 1,000 topics, 10,000 partitions, failover, a 50 GB log, 100,000 parked fetches
	@PYTHONPATH=tests:bench $(BIN)/python bench/bench_scale.py $(ARGS)

bench-groups: setup ## A group of 100 settles, 10,000 groups of 2, a coordinator's death (ARGS="--only settle --kafka")
	@PYTHONPATH=tests:bench $(BIN)/python bench/bench_groups.py $(ARGS)

bench-transactions: setup ## Transactions against Apache Kafka: rates, latency, send_offsets, 100,000 open ids
	@$(BIN)/python bench/bench_transactions.py $(ARGS)

clean: ## Remove .venv, caches and outputs
	@rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
	  demo-out city-out spark-warehouse metastore_db derby.log artifacts dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
