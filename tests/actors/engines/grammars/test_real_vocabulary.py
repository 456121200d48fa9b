"""The tokenizer of the built-in model: 49,152 tokens, most of them of several bytes."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from actors.engines.grammars.vocabulary import Vocabulary, read_vocabulary
from actors.engines.torch.grammars.compiler import CompiledGrammar, compile_grammar
from protocols.spec import Guided, GuidedKind
from tests.built_in import built_in_model

if TYPE_CHECKING:
    from collections.abc import Callable

VOCAB_SIZE = 49_152
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["new", "old"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def is_person(text: str) -> bool:
    value = json.loads(text)
    is_named = isinstance(value["name"], str) and len(value["name"]) <= 12
    is_tagged = 1 <= len(value["tags"]) <= 3 and set(value["tags"]) <= {"new", "old"}
    return is_named and is_tagged and 0 <= value["age"] <= 150 and set(value) == {"name", "age", "tags"}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return read_vocabulary(built_in_model(), VOCAB_SIZE)


def walk(grammar: CompiledGrammar, vocabulary: Vocabulary, rng: random.Random) -> str:
    """A random answer; blanks only where nothing else may come."""
    state, tokens = grammar.new_state(), list[int]()
    for _ in range(300):
        row = torch.zeros(VOCAB_SIZE)
        state.fill_mask()
        state.apply_mask(row)
        allowed: list[int] = torch.nonzero(row == 0).flatten().tolist()
        chosen = rng.sample(allowed, min(len(allowed), 20))
        token = next((one for one in chosen if vocabulary.text_of(one).strip()), chosen[0])
        if token in vocabulary.ends:
            break
        tokens.append(token)
        if state.accept(token):
            break
    return bytes(vocabulary.library.decode_bytes(tokens)).decode()


ANSWERS: dict[str, tuple[str, Any, Callable[[str], object]]] = {
    "json": ("json", SCHEMA, is_person),
    "regex": ("regex", "[0-9]{3}-[a-f]{2,9}", lambda text: re.fullmatch("[0-9]{3}-[a-f]{2,9}", text)),
    "choice": (
        "choice",
        ["Yes, of course.", "No.", "日本"],
        lambda text: text in {"Yes, of course.", "No.", "日本"},
    ),
    "grammar": ("grammar", 'root ::= "<" [a-z]{4} ">"', lambda text: re.fullmatch("<[a-z]{4}>", text)),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_answer_obeys(vocabulary: Vocabulary, kind: str) -> None:
    """With a real vocabulary, too, whatever the masks let through to its end obeys the constraint."""
    kind, constraint, is_right = ANSWERS[kind]
    grammar = compile_grammar(Guided(kind=GuidedKind(kind), constraint=constraint), vocabulary, VOCAB_SIZE)
    for seed in range(5):
        text = walk(grammar, vocabulary, random.Random(seed))
        assert is_right(text), text


def test_a_call_begins_with_a_special_token(vocabulary: Vocabulary) -> None:
    """A trigger that is a special token of this model is this token, and not its spelling."""
    start = vocabulary.special["<|im_start|>"]
    call = {"begin": "<|im_start|>f", "content": {"type": "regex", "pattern": "[0-9]"}, "end": "."}
    format_ = {"type": "triggered_tags", "triggers": ["<|im_start|>"], "tags": [call], "at_least_one": True}
    constraint = {"type": "structural_tag", "format": format_}
    guided = Guided(kind=GuidedKind.STRUCTURAL_TAG, constraint=constraint)
    row = torch.zeros(VOCAB_SIZE)
    state = compile_grammar(guided, vocabulary, VOCAB_SIZE).new_state()
    state.fill_mask()
    state.apply_mask(row)
    assert torch.nonzero(row == 0).flatten().tolist() == [start]
