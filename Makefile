# make demo: watch it work; make test: prove it. Both set up what they need on a fresh machine (see `setup`).
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
SEEDS ?= 0:20000

.PHONY: help setup demo test test-fast check format simulate mutants attack bench bench-full bench-compare bench-docs bench-parts bench-polls bench-ids bench-bulk bench-audit bench-pending bench-forecast bench-peers spark-archive lock clean

help:
	@echo "make demo      three nodes deliver through failures, then Spark audits"
	@echo "make test      all tests (ARGS='-k name' for some)"
	@echo "make test-fast unit tests, a short simulation, one failover on the real stack: under a minute"
	@echo "make check     lint, format, types, layers"
	@echo "make format    put the code into shape"
	@echo "make simulate  the delivery core under seeded faults, taken up where it stopped (SEEDS=0:20000)"
	@echo "make mutants   show that the simulation finds each clause of the rules that is left out"
	@echo "make attack    produce requests that nobody should send, at a real node (ARGS='--seconds 3600 --seed 1')"
	@echo "make bench     measure: throughput, lateness, failover, memory (half an hour; bench-full: an hour)"
	@echo "make bench-compare A=RUN B=RUN  two runs side by side"
	@echo "make bench-docs RUN=FILE  put a run's figures into docs/benchmarks.md"
	@echo "make bench-parts  what each part of a message's way costs"
	@echo "make bench-polls  what a reader costs at small rates, and how late it is"
	@echo "make bench-ids  what an id costs at intake, once a million are known"
	@echo "make bench-bulk  how fast a million rows are loaded, beside Spark's own Kafka sink"
	@echo "make bench-audit  what an audit of a million requests takes"
	@echo "make bench-pending  how long a million pending take into a cluster in another Kafka"
	@echo "make bench-peers  the same work on RocketMQ, Pulsar, Redis and PostgreSQL, side by side (over an hour)"
	@echo "make bench-forecast  how far off the forecast is, on generated weeks"
	@echo "make spark-archive  build/delayline-spark.zip, for spark-submit: delayline, and what it needs"
	@echo "make lock      resolve requirements.lock anew"

# Stamped: costs 0.2 s when everything is there, and no network.
setup:
	@$(PYTHON) -m ops.setup.bootstrap

demo: setup
	$(BIN)/delayline demo $(ARGS)

test: setup
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder $(ARGS)

test-fast: setup
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder -m "unit or fast" tests/chaos/test_kill_points.py \
		tests/simulation/test_simulation.py tests/unit $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

simulate: setup
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

mutants: setup
	$(BIN)/python -m tests.simulation.mutants $(ARGS)

attack: setup
	$(BIN)/python -m tests.attack $(ARGS)

bench: setup
	$(BIN)/python -m bench run $(ARGS)

bench-full: setup
	$(BIN)/python -m bench run --profile full $(ARGS)

bench-compare: setup
	$(BIN)/python -m bench compare $(A) $(B)

bench-docs: setup
	$(BIN)/python -m bench docs $(RUN) $(ARGS)

bench-parts: setup
	$(BIN)/python -m bench parts $(ARGS)

bench-polls: setup
	$(BIN)/python -m bench polls $(ARGS)

bench-ids: setup
	$(BIN)/python -m bench ids $(ARGS)

bench-bulk: setup
	$(BIN)/python -m bench bulk $(ARGS)

bench-audit: setup
	$(BIN)/python -m bench audit $(ARGS)

bench-pending: setup
	$(BIN)/python -m bench pending $(ARGS)

bench-forecast: setup
	$(BIN)/python -m bench forecast $(ARGS)

bench-peers: setup
	$(BIN)/python -m bench peers $(ARGS)

spark-archive: setup
	$(BIN)/python -m ops.setup.spark_archive build/delayline-spark.zip

# One lock for Python 3.11 to 3.13 on Linux and macOS. Needs uv (pipx install uv).
lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --upgrade \
		--no-emit-package delayline-client --no-annotate --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --quiet --output-file requirements.lock

clean:
	rm -rf .venv build dist delayline/build *.egg-info delayline/*.egg-info .mypy_cache .ruff_cache .pytest_cache
