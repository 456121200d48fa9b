"""Guided decoding over HTTP: what comes back obeys the constraint, and a bad one is the caller's mistake."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
GRAMMAR = 'start: "yes, " /[a-z]{3,8}/ "!"'


def said(body: dict[str, Any]) -> str:
    text: str = body["choices"][0]["message"]["content"]
    return text


def test_guided_json(model_stack: Stack) -> None:
    """A schema at the top level of the request binds the answer."""
    status, body = model_stack.chat("Describe Paris.", guided_json=SCHEMA, temperature=0, max_tokens=200)
    assert status == 200, body
    answer = json.loads(said(body))
    assert set(answer) == {"city", "people"}
    assert type(answer["people"]) is int


def test_response_format_json_schema(model_stack: Stack) -> None:
    """OpenAI's way of saying the same, streamed."""
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    question = [{"role": "user", "content": "Describe Rome."}]
    events = model_stack.events(
        "chat/completions",
        {"messages": question, "response_format": wanted, "max_tokens": 200, "temperature": 0},
    )
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e.get("choices"))
    assert set(json.loads(text)) == {"city", "people"}


def test_response_format_json_object(model_stack: Stack) -> None:
    """Some object, whatever is in it."""
    status, body = model_stack.chat(
        "Name two colours as JSON.",
        response_format={"type": "json_object"},
        temperature=0,
        seed=1,
        max_tokens=400,
    )
    assert status == 200, body
    assert body["choices"][0]["finish_reason"] == "stop"
    assert isinstance(json.loads(said(body)), dict)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_guided_regex(model_stack: Stack, temperature: float) -> None:
    """The whole answer matches, greedy or drawn."""
    pattern = r"[A-Z][a-z]{2,9} [0-9]{4}"
    status, body = model_stack.chat(
        "A month and a year?", guided_regex=pattern, temperature=temperature, seed=3, max_tokens=40
    )
    assert status == 200, body
    assert re.fullmatch(pattern, said(body))
    assert body["choices"][0]["finish_reason"] == "stop"


def test_guided_choice(model_stack: Stack) -> None:
    """One of them, to the letter, also where they look like patterns."""
    choices = ["a.c (always)", "[never]", "it depends"]
    status, body = model_stack.chat("Is it so?", guided_choice=choices, temperature=0, max_tokens=40)
    assert status == 200, body
    assert said(body) in choices


def test_guided_grammar(model_stack: Stack) -> None:
    """A grammar in Lark's notation."""
    status, body = model_stack.chat("Well?", guided_grammar=GRAMMAR, temperature=0, max_tokens=40)
    assert status == 200, body
    assert re.fullmatch(r"yes, [a-z]{3,8}!", said(body))


@pytest.mark.parametrize(
    ("option", "constraint"),
    [
        ("guided_json", {"type": "objekt"}),
        ("guided_regex", "[a-"),
        ("guided_grammar", "start: nowhere"),
        ("guided_choice", ["", ""]),
        ("guided_json", {"type": "object", "uniqueItems": True, "properties": {"a": {"$ref": "#/nope"}}}),
    ],
)
def test_a_bad_constraint_is_refused(model_stack: Stack, option: str, constraint: object) -> None:
    """With the field's name and a reason, before the engine hears of it; the next request is served."""
    status, body = model_stack.chat("Hello", **{option: constraint}, max_tokens=4)
    assert status == 400, body
    assert "guided" in json.dumps(body)
    status, _ = model_stack.chat("Hello", max_tokens=2)
    assert status == 200
