# make setup    the virtual environment .venv, from the lock files (nothing is installed elsewhere)
# make demo     a frontend and a worker on this machine, one question, one answer
# make serve    the same, and stays up
# make test     all tests          make check   format, lint, types, rooms
# make faults   every fault of docs/reliability.md on real processes
# make deployed what is in deploy/ as real processes: compose's, systemd's, those of Kubernetes
# make trtllm   end to end and faults, with TensorRT-LLM's driver and a double of its library
# make soak     half an hour of load, cancels, stalls and engine errors      make fuzz   hostile requests
# make compat   the newest accepted ai-dynamo     make bench   the benchmarks
# make tools    servers and a browser for the tests, into .tools (no root needed)
# make lock     new lock files     make clean   remove what the targets above made, except .venv and .tools

PYTHON ?= python3
BIN := .venv/bin
# for example: make test ARGS="-m 'not e2e' -x"
ARGS ?=
CHECKED := actors deploy protocols service tests tools

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test check faults deployed trtllm soak fuzz compat bench tools lock clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "setup: $$($(PYTHON) --version 2>&1) is not usable, Python 3.11 or newer is needed: make setup PYTHON=python3.12" >&2; \
	  exit 2; }
	@$(PYTHON) tools/setup_venv.py

demo: setup
	@$(BIN)/dynamo-actor-worker demo $(ARGS)

serve: setup
	@$(BIN)/dynamo-actor-worker demo --stay $(ARGS)

# By two processes. One module alone: .venv/bin/python -m pytest tests/actors/test_graph.py
test: setup
	@$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder $(ARGS)

check: setup
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/pyright -p pyright-tests.json
	$(BIN)/python -m tools.rooms

# for example: make faults ARGS="-m 'not slow' --moments 6"
faults: setup
	@$(BIN)/python -m pytest tests/faults $(ARGS)

# By two processes: the longest test waits for two minutes until an alert may fire.
deployed: setup
	@$(BIN)/python -m pytest tests/deployed -n 2 --dist loadfile $(ARGS)

# for example: make trtllm ARGS="-m 'each_engine and not slow' --moments 4"
trtllm: setup
	@$(BIN)/python -m pytest tests/e2e tests/faults --engine trtllm $(ARGS)

# for example: make soak ARGS="--minutes 60"
soak: setup
	@$(BIN)/python -m tests.soak $(ARGS)

# for example: make fuzz ARGS="--in-process 1000"
fuzz: setup
	@$(BIN)/python -m tests.fuzz $(ARGS)

compat: setup
	@$(BIN)/python -m tests.compat $(ARGS)

bench: setup
	@$(BIN)/python -m tests.bench $(ARGS)

tools:
	@bash tools/fetch_tools.sh

lock: setup
	@$(BIN)/python tools/lock.py $(ARGS)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +
