"""Many requests at once, any of them in a trap, any of them aborted at any moment: nobody loses anything."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import pytest

from protocols.spec import GenerationSpec, Output, Sampling, StopRules
from protocols.steps import FinishReason
from tests.actors.engines.trtllm.trap_world import PLAIN, check_untouched, config_of, ids, open_trapped
from tests.conformance.reader import EngineReader, Heard
from tests.doubles.trtllm_llms import write_folder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.usefixtures("double")]

REQUESTS, AT_ONCE, MOST_MUTE = 150, 20, 3
STORIES = 4

# By the first id of a prompt. Not here: what is never confirmed, and what ends the engine.
TRAPS: list[dict[str, Any]] = [
    {"late_error": "no"},
    {"late_error": "no", "late_error_after": 3},
    {"only_at_finish": True},
    {"timeout_after": 2},
    {"shrinks_by": 2},
    {"has_no_outputs": True},
    {"never_answers": True},
    {"goes_on_after_abort": 4},
    {"leaves_error": "of nobody in particular"},
    {"leaves_error": "of nobody in particular", "late_error": "and no", "late_error_after": 2},
]
FIRST_PROMPT = 100


@dataclass
class Asked:
    """One request of a story. trap: place in `TRAPS`; None: no trap closes on it."""

    heard: Heard
    trap: int | None
    is_aborted: bool = False


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[EngineReader]:
    """With all traps, and more requests than it can run."""
    traps = [{"prompt": [FIRST_PROMPT + place], **trap} for place, trap in enumerate(TRAPS)]
    config = config_of(write_folder(tmp_path))
    async with open_trapped(config, {"traps": traps}, {"DOUBLE_STEP_MS": "1"}) as opened:
        yield opened


def ask(reader: EngineReader, dice: random.Random) -> Asked:
    """Any request."""
    trap = dice.choice([None, None, *range(len(TRAPS))])
    first = PLAIN[0] if trap is None else FIRST_PROMPT + trap
    stops = frozenset(dice.sample(range(1000, 1040), dice.choice([0, 0, 2])))
    most = dice.randint(1, 40)
    spec = GenerationSpec(
        prompt=(first, *range(6, 6 + dice.randint(0, 10))),
        stop=StopRules(max_tokens=most, stop_token_ids=stops),
        sampling=Sampling(temperature=1.0),
        output=Output(logprobs=dice.choice([None, 0])),
        n=1 if trap == _NEVER else dice.choice([1, 1, 1, 3]),
    )
    return Asked(reader.submit(spec), trap)


async def tell(reader: EngineReader, dice: random.Random) -> list[Asked]:
    """A story: requests come, some are aborted, all end."""
    asked: list[Asked] = []
    while len(asked) < REQUESTS or reader.live:
        while len(asked) < REQUESTS and len(reader.live) < AT_ONCE:
            asked.append(ask(reader, dice))
        live = [each for each in asked if not each.heard.is_ended]
        # Those that never answer keep their slots until somebody aborts them.
        mute = [each for each in live if each.trap == _NEVER]
        unlucky = [each for each in live if dice.random() < 0.01]
        for each in [*unlucky, *mute[(MOST_MUTE if len(live) > len(mute) else 0) :]]:
            each.is_aborted = True
            reader.engine.abort(each.heard.engine_id)
        await reader.read_step()
    return asked


_NEVER = next(place for place, trap in enumerate(TRAPS) if "never_answers" in trap)
_FAILING = {place for place, trap in enumerate(TRAPS) if "late_error" in trap}
# The engine ends these by a word of its own, and nobody hears how they would have ended.
_BROKEN = {place for place, trap in enumerate(TRAPS) if "timeout_after" in trap or "has_no_outputs" in trap}


def check(asked: Asked) -> None:
    """Every token once and in order; no reason but a true one; an error only where there was one."""
    heard, stop = asked.heard, asked.heard.spec.stop
    for index, tokens in enumerate(heard.token_ids):
        assert tokens == ids(len(tokens))
        reason = heard.reasons.get(index)
        if reason is FinishReason.LENGTH:
            assert len(tokens) == stop.max_tokens
        elif reason is FinishReason.STOP:
            assert heard.stop_reasons[index] in stop.stop_token_ids
        elif reason is FinishReason.CANCELLED:
            assert asked.is_aborted
    if heard.error is not None:
        assert asked.trap in _FAILING | _BROKEN
    elif not asked.is_aborted:
        assert len(heard.reasons) == heard.spec.n
        assert asked.trap not in _FAILING or _ended_before(heard, TRAPS[asked.trap])


def _ended_before(heard: Heard, trap: dict[str, Any]) -> bool:
    """Whether it had no chance to fail: it said less than that."""
    return all(len(tokens) < trap.get("late_error_after", 0) for tokens in heard.token_ids)


@pytest.mark.parametrize("seed", range(STORIES))
async def test_any_story_ends_well(reader: EngineReader, seed: int) -> None:
    """Whatever happens to some, each ends once, and the engine is free afterwards."""
    asked = await tell(reader, random.Random(seed))
    assert len(asked) == REQUESTS
    for each in asked:
        assert each.heard.is_ended
        check(each)
    await check_untouched(reader)
    # The last one's task ends a turn after its last word.
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    engine: Any = reader.engine
    assert engine._running._rows == {}
    assert engine._running.running == 0
