"""Stacks to break, and the table of what was measured while they broke."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.engines import Served
from tests.e2e.stacks import Stack, Worker
from tests.e2e.word_model import write_word_model
from tests.faults.figures import Figures

StackFactory = Callable[..., Stack]
WorkerFactory = Callable[..., Worker]

HOSTILE = (sys.executable, "-m", "tests.doubles.hostile_worker")
_FIGURES = pytest.StashKey[Figures]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--figures FILE``: where to write the table, beside printing it. ``--moments N``: see `moments`."""
    parser.addoption("--figures", type=Path, default=None, help="write the figures of tests/faults to a file")
    parser.addoption("--moments", type=int, default=30, help="how many workers end in test_moments.py")


def pytest_configure(config: pytest.Config) -> None:
    """One table a run."""
    config.stash[_FIGURES] = Figures()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table, and write it where the option says."""
    table = config.stash[_FIGURES].markdown()
    if not table:
        return
    terminalreporter.section("figures")
    terminalreporter.write_line(table)
    if config.option.figures is not None:
        config.option.figures.write_text(table, encoding="utf-8")


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    """``figures.record(row=1, what="others lost", value="0 of 63", goal="0")``."""
    return pytestconfig.stash[_FIGURES]


@pytest.fixture(scope="session")
def moments(pytestconfig: pytest.Config) -> int:
    """At how many random moments a worker ends; an even number."""
    found: int = pytestconfig.option.moments
    return found


@pytest.fixture(scope="session")
def word_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of made-up words, in a folder that looks like a model's."""
    return write_word_model(tmp_path_factory.mktemp("word-model"))


@pytest.fixture
def new_stack(served: Served, word_model: Path, tmp_path: Path) -> Iterator[StackFactory]:
    """Makes a frontend and its workers, which a test may ruin; whatever still runs afterwards is stopped.

    ``new_stack("--drain-timeout", "3", step_ms=20, hostile=({}, {"heeds_marks": False}))``: one worker with
    the hostile engine for each of the settings (`tests.doubles.hostile_engine.HostileSettings`), every one
    of them known to the frontend and past its engine's first step.
    """
    with ExitStack() as stacks:

        def make(
            *options: str,
            step_ms: float = 20,
            max_num_seqs: int = 128,
            hostile: Sequence[Mapping[str, Any]] = ({},),
            **arrangement: Any,
        ) -> Stack:
            stack = served.stack(
                tmp_path / "stack",
                word_model,
                "--max-num-seqs",
                str(max_num_seqs),
                *options,
                step_ms=step_ms,
                workers=0,
                program=HOSTILE,
                **arrangement,
            )
            stacks.callback(stack.stop)
            for settings in hostile:
                add_hostile(stack, settings)
            return warm(stack.wait_ready())

        yield make


@pytest.fixture
def new_worker(served: Served, word_model: Path, tmp_path: Path) -> Iterator[WorkerFactory]:
    """Makes one worker without a frontend, and waits for nothing: it may never come up."""
    with ExitStack() as stacks:

        def make(settings: Mapping[str, Any], *options: str) -> Worker:
            stack = served.stack(
                tmp_path / "alone", word_model, *options, workers=0, program=HOSTILE, has_frontend=False
            )
            stacks.callback(stack.stop)
            return add_hostile(stack, settings)

        yield make


def add_hostile(stack: Stack, settings: Mapping[str, Any]) -> Worker:
    """One more worker, with these settings of its engine; does not wait for it."""
    worker = stack.add_worker(environ={"HOSTILE_ENGINE": json.dumps(dict(settings))})
    stack.workers.append(worker)
    return worker


def warm(stack: Stack, timeout_s: float = 60.0) -> Stack:
    """Ask until every worker has answered: the frontend routes to all, and every engine has made a step."""
    give_up_s = time.monotonic() + timeout_s
    model, question = stack.model(), {"role": "user", "content": "w5"}
    while not all(worker.status()["outcomes"].get("completed") for worker in stack.workers):
        assert time.monotonic() < give_up_s, "a worker gets no request"
        # Whatever the answer is: a frontend that has just heard of a worker may not know its model yet.
        stack.client.post("/v1/chat/completions", {"model": model, "messages": [question], "max_tokens": 1})
    return stack
