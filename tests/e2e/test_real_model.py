"""The main job, with real weights: the built-in model answers through the real frontend."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.built_in import built_in_model
from tests.e2e.engines import Served
from tests.e2e.stacks import Reader, Stack, hang_up

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]

QUESTION = "What is the capital of France?"


@pytest.fixture
def real_stack(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A real engine on SmolLM2."""
    built_in_model()
    folder = tmp_path_factory.mktemp("real")
    with served.stack_with_weights(folder, "smollm2-135m", "--max-num-seqs", "4") as stack:
        yield stack


def test_the_model_knows_the_capital_of_france(model_stack: Stack) -> None:
    """A greedy answer from real weights, ended by the model itself."""
    status, body = model_stack.chat(QUESTION, temperature=0, max_tokens=48)
    assert status == 200
    assert "Paris" in body["choices"][0]["message"]["content"]
    assert body["choices"][0]["finish_reason"] == "stop"


def test_streaming_and_unary_give_the_same_text(model_stack: Stack) -> None:
    """How an answer is carried does not change it."""
    _, body = model_stack.chat(QUESTION, temperature=0, max_tokens=24)
    options = {"temperature": 0, "max_tokens": 24}
    reader = Reader(model_stack.client, model_stack.model(), QUESTION, options).start().finish()
    assert reader.error is None
    assert reader.text == body["choices"][0]["message"]["content"]


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(model_stack: Stack) -> None:
    """Sampling is real, and repeatable."""
    answers = []
    for seed in (7, 7, 8):
        _, body = model_stack.chat("Tell me a story.", temperature=1.0, seed=seed, max_tokens=16)
        answers.append(body["choices"][0]["message"]["content"])
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


def test_a_disconnect_frees_the_slot_of_a_real_engine(model_stack: Stack) -> None:
    """The engine stops computing for a client that has left."""
    worker = model_stack.workers[0]
    hang_up(
        model_stack.http_port,
        model_stack.model(),
        "Tell me a long story.",
        900,
        max_tokens=1000,
        ignore_eos=True,
    )
    worker.wait_status(lambda state: state["in_flight"] == 0, timeout_s=20)


def test_a_sigterm_in_mid_answer_loses_nothing(real_stack: Stack) -> None:
    """More requests than slots, a signal, and every answer arrives whole."""
    worker = real_stack.workers[0]
    options = {"temperature": 0, "max_tokens": 20, "ignore_eos": True}
    readers = [Reader(real_stack.client, real_stack.model(), QUESTION, options).start() for _ in range(6)]
    worker.wait_status(lambda state: state["live"] == 6, timeout_s=20)
    worker.send(signal.SIGTERM)
    for reader in readers:
        reader.finish(120)
        assert reader.error is None
        assert reader.reason == "length"
    assert worker.child.wait(60) == 0
