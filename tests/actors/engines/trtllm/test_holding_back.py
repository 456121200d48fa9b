"""Ids that end an answer are not chosen before they may."""

from __future__ import annotations

import pickle

import torch
from torch import Tensor

from actors.engines.trtllm.processors.holding_back import HoldBack
from actors.engines.trtllm.requests.sampling import hold_back
from protocols.spec import Guided, GuidedKind, Stage, StopRules
from tests.actors.engines.trtllm.scripted import spec

STOP = StopRules(max_tokens=9, min_tokens=3, eos_token_ids=frozenset({1, 2}), stop_token_ids=frozenset({4}))


def steered(tokens: int, logits: Tensor) -> Tensor:
    """The row after the processor, which has travelled, saw a prompt of 3 and so many tokens."""
    found = hold_back(spec(stop=STOP))
    assert found is not None
    travelled: HoldBack = pickle.loads(pickle.dumps(found))
    travelled(0, logits, [[0] * (3 + tokens)] * (logits.numel() // 6), None, 7)
    return logits


def test_until_the_minimum_only_the_others_can_be_chosen() -> None:
    """The engine sees to its own end id; from the minimum on nothing is changed."""
    for tokens in range(3):
        row = steered(tokens, torch.zeros(1, 6))
        assert row.isneginf().nonzero().tolist() == [[0, 2], [0, 4]]
    assert not steered(3, torch.zeros(1, 6)).any()


def test_every_beam_is_held_back() -> None:
    """Whatever axes stand before the vocabulary."""
    row = steered(0, torch.zeros(1, 2, 6))
    assert row.isneginf().sum().item() == 4


def test_nothing_is_held_back_without_need() -> None:
    """One end id is the engine's affair, no minimum nobody's."""
    assert hold_back(spec(stop=StopRules(max_tokens=9, stop_token_ids=frozenset({4, 5})))) is None
    assert hold_back(spec(stop=StopRules(max_tokens=9, min_tokens=3, eos_token_ids=frozenset({1})))) is None


def test_a_prefill_holds_back_too() -> None:
    """Its token is the first of the answer."""
    assert hold_back(spec(stop=STOP, stage=Stage.PREFILL)) == hold_back(spec(stop=STOP))


def test_a_constraint_that_is_complete_must_be_able_to_end() -> None:
    """With all ends held back nothing at all could be chosen."""
    guided = Guided(kind=GuidedKind.REGEX, constraint="[a-z]")
    assert hold_back(spec(stop=STOP, guided=guided)) is None
