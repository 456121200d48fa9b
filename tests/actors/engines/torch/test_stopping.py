"""When a sequence ends, and what must not be chosen before."""

from __future__ import annotations

import pytest

from actors.engines.torch.sequence import Request, Sequence
from actors.engines.torch.stopping import Ending, ending_of, forbidden_ids
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId, FinishReason

RULES = StopRules(max_tokens=3, min_tokens=2, eos_token_ids=frozenset({2}), stop_token_ids=frozenset({7, 8}))


def sequence(*output: int, rules: StopRules = RULES) -> Sequence:
    made = Request(EngineId(1), GenerationSpec(prompt=(2, 7), stop=rules), 0).sequences[0]
    made.tokens += output
    return made


@pytest.mark.parametrize(
    ("output", "ending"),
    [
        ((1,), None),
        ((1, 1), None),
        ((1, 1, 1), Ending(FinishReason.LENGTH)),
        ((1, 2), Ending(FinishReason.EOS)),
        ((1, 7), Ending(FinishReason.STOP, 7)),
        ((1, 1, 8), Ending(FinishReason.STOP, 8)),
        ((1, 1, 2), Ending(FinishReason.EOS)),
    ],
)
def test_the_newest_token_decides(output: tuple[int, ...], ending: Ending | None) -> None:
    """Stop id, end of sequence, then length; ids of the prompt do not count."""
    assert ending_of(sequence(*output)) == ending


def test_an_id_in_both_sets_is_what_the_caller_asked_for() -> None:
    """An id that is stop id and end of sequence ends with the caller's reason."""
    rules = StopRules(max_tokens=3, eos_token_ids=frozenset({7}), stop_token_ids=frozenset({7}))
    assert ending_of(sequence(7, rules=rules)) == Ending(FinishReason.STOP, 7)


def test_no_stop_id_is_allowed_before_min_tokens() -> None:
    """Both sets are forbidden for the first min_tokens outputs, nothing afterwards."""
    assert forbidden_ids(sequence()) == forbidden_ids(sequence(1)) == {2, 7, 8}
    assert forbidden_ids(sequence(1, 1)) == frozenset()
