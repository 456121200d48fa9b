"""Promises about requests of several choices, through the whole graph (S11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocols.steps import Delta, FinishReason
from protocols.telemetry import Outcome

if TYPE_CHECKING:
    from protocols.steps import EngineId
    from tests.conftest import OpenWorld

pytestmark = pytest.mark.anyio

CHOICE_1_STOPS = FinishReason.STOP


def s11(engine_id: EngineId, shape: str) -> list[list[Delta]]:
    """Choice 1 stops after two tokens, choice 0 goes on to six: steps of an engine, told in several ways."""
    early = Delta(engine_id, [21, 22], 1, CHOICE_1_STOPS)
    end: Any = {"finish_reason": FinishReason.LENGTH, "is_last": True}
    match shape:
        case "both in one step":
            return [[early, Delta(engine_id, [11, 12, 13, 14, 15, 16], 0, **end)]]
        case "the longer one first":
            return [[Delta(engine_id, [11, 12, 13, 14, 15], 0)], [early], [Delta(engine_id, [16], 0, **end)]]
        case "one token a step":
            first = [[Delta(engine_id, [11], 0), Delta(engine_id, [21], 1)]]
            second = [[Delta(engine_id, [12], 0), Delta(engine_id, [22], 1, CHOICE_1_STOPS)]]
            rest = [[Delta(engine_id, [token], 0)] for token in (13, 14, 15)]
            return [*first, *second, *rest, [Delta(engine_id, [16], 0, **end)]]
        case _:
            return [
                [early],
                [Delta(engine_id, [11, 12, 13, 14, 15, 16], 0)],
                [Delta(engine_id, [], 0, **end)],
            ]


@pytest.mark.parametrize(
    "shape", ["both in one step", "the longer one first", "one token a step", "an end without tokens"]
)
@pytest.mark.parametrize("is_read_late", [True, False])
async def test_each_choice_gets_its_own_and_the_last_one_the_last_word(
    open_world: OpenWorld, shape: str, is_read_late: bool
) -> None:
    """Chunks have their index; one reason goes out, on the very last chunk; usage counts every token once."""
    async with open_world() as world:
        visit = await world.ask_settled(prompt=(1, 2), n=2, max_tokens=6)
        for deltas in s11(visit.id, shape):
            world.engine.emit(*deltas)
            await world.settle()
            if not is_read_late and visit.ticket.outbox.waiting_tokens:
                await visit.reader.read()
        answer = await visit.answer()
        assert (answer.tokens_of(0), answer.tokens_of(1)) == ([11, 12, 13, 14, 15, 16], [21, 22])
        assert all("finish_reason" not in chunk for chunk in answer.chunks[:-1])
        assert (answer.chunks[-1]["index"], answer.finish_reasons) == (0, ["length"])
        assert answer.chunks[-1]["completion_usage"] == {
            "prompt_tokens": 2,
            "completion_tokens": 8,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        story = world.listener.stories[visit.id]
        assert (story.finish_reason, story.finish_reasons) == ("length", ("length", "stop"))
        assert story.completion_tokens == 8


async def test_a_client_that_leaves_ends_only_what_is_open(open_world: OpenWorld) -> None:
    """The choice that had ended keeps its reason, the others are cancelled, the engine is told once."""
    async with open_world() as world:
        visit = await world.ask_settled(n=3, max_tokens=6)
        world.engine.emit(Delta(visit.id, [21, 22], 1, CHOICE_1_STOPS), Delta(visit.id, [11], 0))
        await world.settle()
        await visit.leave()
        await world.settle()
        story = world.listener.stories[visit.id]
        assert story.outcome is Outcome.CANCELLED
        assert story.finish_reasons == ("cancelled", "stop", "cancelled")
        assert world.engine.ids_of("abort") == [visit.id]
        assert (await visit.answer()).finish_reasons == ["cancelled"]


async def test_a_failure_leaves_what_had_ended(open_world: OpenWorld) -> None:
    """Open choices have no reason in the story: an error ended them. All tokens are delivered before it."""
    async with open_world() as world:
        visit = await world.ask_settled(n=2, max_tokens=6)
        world.engine.emit(Delta(visit.id, [21, 22], 1, CHOICE_1_STOPS), Delta(visit.id, [11], 0))
        world.engine.fail(visit.id)
        answer = await visit.answer()
        assert (answer.tokens_of(0), answer.tokens_of(1), answer.terminals) == ([11], [21, 22], 1)
        assert world.listener.stories[visit.id].finish_reasons == (None, "stop")


async def test_the_last_word_waits_for_the_tokens_of_all_choices(open_world: OpenWorld) -> None:
    """However much of either lies in the outbox when the end is said, it is taken first."""
    async with open_world(chunk_tokens=1) as world:
        visit = await world.ask_settled(n=2, max_tokens=6)
        world.engine.emit(Delta(visit.id, [11], 0), Delta(visit.id, [21], 1), Delta(visit.id, [12], 0))
        world.engine.emit(
            Delta(visit.id, [22], 1, FinishReason.EOS),
            Delta(visit.id, [], 0, FinishReason.LENGTH, is_last=True),
        )
        await world.settle()
        answer = await visit.answer()
        assert [(chunk["index"], chunk["token_ids"]) for chunk in answer.chunks] == [
            (0, [11]), (1, [21]), (0, [12]), (1, [22]), (0, []),
        ]  # fmt: skip
        assert "finish_reason" in answer.chunks[-1]
