"""Stacks of real processes, shared where tests only ask and private where they break things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.built_in import built_in_model
from tests.e2e.engines import Served
from tests.e2e.stacks import Stack
from tests.e2e.tiny_model import write_tiny_model
from tests.e2e.word_model import write_word_model

StackFactory = Callable[..., Stack]


@pytest.fixture(scope="session")
def word_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of made-up words, in a folder that looks like a model's."""
    return write_word_model(tmp_path_factory.mktemp("word-model"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real tokens of small random weights, for tests in which it does not matter what is said."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny-model"), built_in_model())


@pytest.fixture(scope="module")
def shared_stack(
    served: Served, word_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """One worker at 10 ms a step, for tests that leave it as it was."""
    with served.stack(tmp_path_factory.mktemp("stack"), word_model, step_ms=10) as stack:
        yield stack


@pytest.fixture(scope="session")
def model_stack(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A real engine on SmolLM2 with all that a request can ask for, for tests that leave it as it was."""
    built_in_model()
    options = ["--max-num-seqs", "8", "--logits-processor", "only-a=tests.e2e.processors:Forcing"]
    options += ["--logits-processor", "broken=tests.e2e.processors:Broken"]
    with served.stack_with_weights(tmp_path_factory.mktemp("model"), "smollm2-135m", *options) as stack:
        yield stack


@pytest.fixture
def new_stack(served: Served, word_model: Path, tmp_path: Path) -> Iterator[StackFactory]:
    """Makes stacks that a test may ruin; whatever still runs afterwards is stopped."""
    with ExitStack() as stacks:

        def make(*options: str, step_ms: float = 10, **arrangement: Any) -> Stack:
            return stacks.enter_context(
                served.stack(tmp_path / "stack", word_model, *options, step_ms=step_ms, **arrangement)
            )

        yield make
