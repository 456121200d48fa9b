"""Logprobs over HTTP, for chat and completions, unary and streamed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]

ASKED: dict[str, Any] = {"temperature": 0, "max_tokens": 6}


def check_content(content: list[dict[str, Any]], most: int) -> None:
    """Every token is greedy, so it is the most likely one of its position."""
    for entry in content:
        assert entry["logprob"] <= 0.0
        rivals = entry["top_logprobs"]
        assert len(rivals) == most
        assert [r["logprob"] for r in rivals] == sorted((r["logprob"] for r in rivals), reverse=True)
        assert rivals[0]["token"] == entry["token"]
        assert math.isclose(rivals[0]["logprob"], entry["logprob"], abs_tol=1e-5)


def test_chat_unary(model_stack: Stack) -> None:
    """As many entries as tokens, each with its rivals, most likely first."""
    status, body = model_stack.chat("Hello there", logprobs=True, top_logprobs=3, **ASKED)
    assert status == 200, body
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"]
    check_content(content, 3)
    assert "".join(entry["token"] for entry in content).startswith(
        body["choices"][0]["message"]["content"][:5]
    )


def test_chat_shows_the_chosen_token_when_no_rivals_are_asked_for(model_stack: Stack) -> None:
    """``logprobs: true`` alone."""
    status, body = model_stack.chat("Hello there", logprobs=True, **ASKED)
    assert status == 200, body
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"]
    assert all(entry["logprob"] <= 0.0 for entry in content)


def test_chat_streamed(model_stack: Stack) -> None:
    """The same entries, however the chunks were merged."""
    _, body = model_stack.chat("Hello there", logprobs=True, top_logprobs=2, **ASKED)
    events = model_stack.events(
        "chat/completions",
        {
            "messages": [{"role": "user", "content": "Hello there"}],
            "logprobs": True,
            "top_logprobs": 2,
            **ASKED,
        },
    )
    streamed = [
        entry
        for event in events
        for choice in event.get("choices", [])
        for entry in (choice.get("logprobs") or {}).get("content") or []
    ]
    expected = body["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in streamed] == [entry["token"] for entry in expected]
    for one, other in zip(streamed, expected, strict=True):
        assert math.isclose(one["logprob"], other["logprob"], abs_tol=1e-4)


@pytest.mark.parametrize("asked", [0, 4])
def test_completions(model_stack: Stack, asked: int) -> None:
    """The older shape: lists side by side."""
    status, body = model_stack.complete("The capital of France is", logprobs=asked, **ASKED)
    assert status == 200, body
    told = body["choices"][0]["logprobs"]
    assert len(told["token_logprobs"]) == len(told["tokens"]) == body["usage"]["completion_tokens"]
    assert all(value <= 0.0 for value in told["token_logprobs"])


def test_a_sampled_token_has_its_own_value(model_stack: Stack) -> None:
    """What was drawn need not be among the most likely; its logprob is its own."""
    status, body = model_stack.chat(
        "Tell me something odd.", logprobs=True, top_logprobs=1, temperature=1.8, seed=5, max_tokens=24
    )
    assert status == 200, body
    content = body["choices"][0]["logprobs"]["content"]
    unlikely = [
        e for e in content if e["token"] != max(e["top_logprobs"], key=lambda r: r["logprob"])["token"]
    ]
    assert unlikely, "at this temperature some token is not the most likely one"
    for entry in unlikely:
        assert entry["logprob"] < max(rival["logprob"] for rival in entry["top_logprobs"])


def test_prompt_logprobs(model_stack: Stack) -> None:
    """One entry for each token of the prompt, nothing for the first, handed on when asked for."""
    status, body = model_stack.complete(
        "The capital of France is",
        prompt_logprobs=1,
        max_tokens=1,
        temperature=0,
        nvext={"extra_fields": ["prompt_logprobs", "engine_data"]},
    )
    assert status == 200, body
    told = body["nvext"]["prompt_logprobs"]
    assert len(told) == body["usage"]["prompt_tokens"]
    assert told[0] is None
    for entry in told[1:]:
        assert all(candidate["logprob"] <= 0.0 for candidate in entry.values())


def test_completions_streamed(model_stack: Stack) -> None:
    """Every event has the values of its own tokens."""
    asked = {"prompt": "The capital of France is", "logprobs": 2, **ASKED}
    _, body = model_stack.complete(**asked)
    events = model_stack.events("completions", asked)
    told = [c["logprobs"] for event in events for c in event.get("choices", []) if c.get("logprobs")]
    tokens = [token for each in told for token in each["tokens"]]
    values = [value for each in told for value in each["token_logprobs"]]
    expected = body["choices"][0]["logprobs"]
    assert tokens == expected["tokens"]
    assert all(
        math.isclose(one, other, abs_tol=1e-4)
        for one, other in zip(values, expected["token_logprobs"], strict=True)
    )
