"""Several choices, seeds, penalties and reuse of the cache over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]


def texts(body: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in sorted(body["choices"], key=lambda c: c["index"])]


def test_two_choices(model_stack: Stack) -> None:
    """Two answers of their own; usage counts the prompt once and both outputs."""
    options: dict[str, Any] = {"temperature": 1.0, "seed": 11, "max_tokens": 12, "ignore_eos": True}
    _, single = model_stack.chat("Tell me a story.", **options)
    status, body = model_stack.chat("Tell me a story.", n=2, **options)
    assert status == 200, body
    first, second = texts(body)
    assert first != second
    assert first == texts(single)[0]
    assert body["usage"]["completion_tokens"] == 24
    assert body["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]


def test_two_choices_streamed(model_stack: Stack) -> None:
    """Chunks carry the index of their choice."""
    body = {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "n": 2,
        "temperature": 1.0,
        "seed": 11,
        "max_tokens": 12,
    }
    events = model_stack.events("chat/completions", body)
    assert {choice["index"] for event in events for choice in event.get("choices", [])} == {0, 1}
    assert not any("error" in event for event in events)


def test_penalties_change_the_answer(model_stack: Stack) -> None:
    """A frequency penalty keeps a small model from repeating itself."""
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "ignore_eos": True}
    _, plain = model_stack.complete("la la la la la la la la", **options)
    status, penalised = model_stack.complete(
        "la la la la la la la la", frequency_penalty=1.5, presence_penalty=0.5, **options
    )
    assert status == 200, penalised
    plain_words, words = plain["choices"][0]["text"].split(), penalised["choices"][0]["text"].split()
    assert len(set(words)) > len(set(plain_words))


def test_min_p_one_is_greedy(model_stack: Stack) -> None:
    """Nothing below the most likely token is left to draw."""
    _, greedy = model_stack.chat("Name a colour.", temperature=0, max_tokens=8)
    status, body = model_stack.chat("Name a colour.", temperature=1.5, min_p=1.0, seed=2, max_tokens=8)
    assert status == 200, body
    assert texts(body) == texts(greedy)


def test_the_second_equal_prompt_is_read_from_the_cache(model_stack: Stack) -> None:
    """Full blocks of the prompt are not computed twice, and the usage says so."""
    question = "Please repeat after me, word for word: " + "one two three four five six seven eight. " * 6
    _, first = model_stack.chat(question, temperature=0, max_tokens=4)
    _, second = model_stack.chat(question, temperature=0, max_tokens=4)
    _, salted = model_stack.chat(question, temperature=0, max_tokens=4, nvext={"cache_salt": "other"})
    prompt_tokens = first["usage"]["prompt_tokens"]
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == (prompt_tokens - 1) // 32 * 32
    assert texts(second) == texts(first) == texts(salted)
    assert not (salted["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")


def test_the_stop_id_that_ended_an_answer_is_told(model_stack: Stack) -> None:
    """The caller's own stop id, in the answer's extra fields when asked for."""
    # 34 is the digit two.
    status, body = model_stack.chat(
        "Count to five.",
        temperature=0,
        max_tokens=40,
        guided_regex="1, 2, 3, 4, 5",
        stop_token_ids=[34],
        nvext={"extra_fields": ["stop_reason"]},
    )
    assert status == 200, body
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["nvext"]["stop_reason"] == 34
