"""No abort reaches an engine while it would harm another worker."""

from __future__ import annotations

from itertools import product

import pytest

from actors.engines.trtllm.roles.deferral import AbortMoment, Heard, when_to_abort
from protocols.spec import Stage


def test_every_stage_has_a_rule_whatever_was_heard() -> None:
    """There is no case that is thought of when it happens."""
    assert all(isinstance(when_to_abort(*case), AbortMoment) for case in product(Stage, Heard))


def test_a_decode_whose_cache_is_under_way_is_aborted_with_its_first_token() -> None:
    """The prefill worker's blocks are free by then, and the engine's transfer is over."""
    assert when_to_abort(Stage.DECODE, Heard.NOTHING) is AbortMoment.WITH_FIRST_TOKEN
    assert when_to_abort(Stage.DECODE, Heard.TOKENS) is AbortMoment.NOW


@pytest.mark.parametrize("heard", [Heard.TOKENS, Heard.END])
def test_a_prefill_that_has_answered_is_never_aborted(heard: Heard) -> None:
    """A decode worker may be reading what it has handed over."""
    assert when_to_abort(Stage.PREFILL, heard) is AbortMoment.NEVER


@pytest.mark.parametrize("stage", [Stage.PREFILL, Stage.WHOLE])
def test_nobody_waits_for_a_prompt_that_nobody_wants(stage: Stage) -> None:
    """Until it is computed, ending it early frees the engine for others."""
    assert when_to_abort(stage, Heard.NOTHING) is AbortMoment.NOW


@pytest.mark.parametrize("stage", Stage)
def test_whose_prompt_is_to_be_told_is_ended_with_its_first_token(stage: Stage) -> None:
    """By then the logprobs of its prompt are there, and the library does not stumble over their lack."""
    assert when_to_abort(stage, Heard.NOTHING, tells_prompt=True) is AbortMoment.WITH_FIRST_TOKEN
    for heard in (Heard.TOKENS, Heard.END):
        assert when_to_abort(stage, heard, tells_prompt=True) is when_to_abort(stage, heard)


@pytest.mark.parametrize("stage", Stage)
def test_what_has_ended_is_not_aborted(stage: Stage) -> None:
    """Not even one whose abort was put off until then."""
    assert when_to_abort(stage, Heard.END) is AbortMoment.NEVER
