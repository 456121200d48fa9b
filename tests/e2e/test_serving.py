"""What a client of the real frontend gets from a real worker process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.e2e.engines import Served
from tests.e2e.stacks import Reader, Stack, hang_up
from tests.e2e.word_model import word_of

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(120)]

# What each engine cannot do, and what is said of it.
CANNOT: dict[str, tuple[dict[str, Any], str]] = {
    "synthetic": ({"logprobs": True}, "output_options.logprobs"),
    "trtllm": ({"n": 2, "temperature": 0.8, "top_k": 1}, "TLLM_ALLOW_N_GREEDY_DECODING"),
}


def words(ids: Iterable[int]) -> list[str]:
    """The words of ids, as the answer shows them."""
    return [word_of(i) for i in ids]


def test_a_chat_answer_has_every_token_and_exact_usage(shared_stack: Stack) -> None:
    """A unary chat answer is the tokens of the engine, all of them, and says how many."""
    status, body = shared_stack.chat("w5 w6 w7", max_tokens=6)
    assert status == 200
    choice = body["choices"][0]
    assert choice["message"]["content"].split() == words(range(1000, 1006))
    assert choice["finish_reason"] == "length"
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 6)


def test_a_completion_answers_a_bare_prompt(shared_stack: Stack) -> None:
    """The completions route works as the chat route does."""
    status, text = shared_stack.client.post(
        "/v1/completions", {"model": shared_stack.model(), "prompt": "w5 w6", "max_tokens": 3}
    )
    body = json.loads(text)
    assert status == 200
    assert body["choices"][0]["text"].split() == words(range(1000, 1003))


def test_a_stream_delivers_tokens_once_in_order_and_ends_with_a_reason(shared_stack: Stack) -> None:
    """Streaming gives the same words as the unary form, then one reason."""
    reader = Reader(shared_stack.client, shared_stack.model(), "w5", {"max_tokens": 40}).start().finish()
    assert reader.error is None
    assert reader.text.split() == words(range(1000, 1040))
    assert reader.reason == "length"


def test_a_stop_string_ends_the_answer_and_frees_the_slot(shared_stack: Stack) -> None:
    """The frontend cuts at the stop string and aborts; our books say stopped_by_frontend."""
    worker = shared_stack.workers[0]
    before = worker.status()["outcomes"]["stopped_by_frontend"]
    status, body = shared_stack.chat("w5", max_tokens=2000, stop=["w1010"])
    assert status == 200
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["message"]["content"].split() == words(range(1000, 1010))
    after = worker.wait_status(lambda state: state["in_flight"] == 0 and state["live"] == 0)
    assert after["outcomes"]["stopped_by_frontend"] == before + 1


def test_a_stop_token_id_ends_the_answer(shared_stack: Stack) -> None:
    """A stop id is the engine's own stop: nothing to abort, reason stop."""
    status, body = shared_stack.chat("w5", max_tokens=50, stop_token_ids=[1004])
    assert status == 200
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 5


def test_a_prompt_longer_than_the_context_is_refused_and_the_next_one_served(shared_stack: Stack) -> None:
    """Too long is the caller's mistake: a 400, and a worker that goes on."""
    status, body = shared_stack.chat("w5 " * 3000, max_tokens=4)
    assert status == 400, body
    status, _ = shared_stack.chat("w5", max_tokens=4)
    assert status == 200


def test_a_wrong_value_is_refused_by_name(served: Served, shared_stack: Stack) -> None:
    """What the frontend lets through and the engine cannot do is a 400 that names the field."""
    options, name = CANNOT[served.name]
    status, body = shared_stack.chat("w5", max_tokens=4, **options)
    assert status == 400
    assert name in json.dumps(body)


def test_several_choices_come_back_apart(shared_stack: Stack) -> None:
    """n = 2: two choices, each with its own tokens, usage over both."""
    status, body = shared_stack.chat("w5", max_tokens=4, n=2, temperature=1.0)
    assert status == 200
    contents = {choice["index"]: choice["message"]["content"].split() for choice in body["choices"]}
    assert contents == {0: words(range(1000, 1004)), 1: words(range(1000, 1004))}
    assert body["usage"]["completion_tokens"] == 8


def test_a_client_that_hangs_up_frees_its_slot(shared_stack: Stack) -> None:
    """A disconnect reaches the engine; the books say cancelled, once."""
    worker = shared_stack.workers[0]
    before = worker.status()["outcomes"]["cancelled"]
    hang_up(shared_stack.http_port, shared_stack.model(), "w5", 600, max_tokens=1900)
    after = worker.wait_status(lambda state: state["in_flight"] == 0 and state["live"] == 0)
    assert after["outcomes"]["cancelled"] == before + 1


def test_health_and_metrics_are_there(shared_stack: Stack) -> None:
    """The system server says ready, and its one metrics page has our names with the framework's labels."""
    worker = shared_stack.workers[0]
    assert worker.system.get("/health")[0] == 200
    status, page = worker.system.get("/metrics")
    assert status == 200
    assert "dynamo_actor_requests_total{" in page
    assert 'outcome="completed"' in page


def test_the_books_balance_at_rest(shared_stack: Stack) -> None:
    """Started is the sum of the eight outcomes when nobody is live."""
    state = shared_stack.workers[0].wait_status(lambda status: status["live"] == 0)
    assert state["started"] == sum(state["outcomes"].values())
