"""Field reports about answers and deaths (S10 to S12), with TensorRT-LLM's double behind the graph."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocols.errors import EngineShutdown, FailureCause, GenerationFailed, InvalidRequest
from protocols.telemetry import CancelReason, Outcome
from tests.actors.engines.trtllm.report_world import PATIENCE_S, answer, ask, check_next, open_reports
from tests.actors.engines.trtllm.trap_world import config_of, ids

if TYPE_CHECKING:
    from pathlib import Path

    from tests.actors.world import World

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]


def said(ids_: list[int], finish: str = "", index: int = 0) -> dict[str, Any]:
    return {"ids": ids_, "finish": finish, "index": index}


TRAPS: list[dict[str, Any]] = [
    {"prompt": [10], "says": [said([5, 6, 7]), said([]), said([8, 9], "LENGTH")]},
    {"prompt": [11], "says": [said([5], "LENGTH")]},
    {"prompt": [12], "has_no_outputs": True},
    {
        "prompt": [20],
        "says": [
            said([5], index=1), said([7, 8]), said([6], "END_ID", 1), *[said([9])] * 3, said([9], "LENGTH"),
        ],
    },
    {"prompt": [21], "says": [said([5, 6], "END_ID", 1), *[said([7])] * 400]},
    {"prompt": [30], "late_error": "out of memory for this request"},
    {"prompt": [31], "late_error": "list index out of range"},
]  # fmt: skip


@pytest.fixture(scope="module")
async def world(anyio_backend: object, double: None, folder: Path) -> AsyncIterator[World]:
    """One for all whom it survives."""
    async with open_reports(config_of(folder), {"traps": TRAPS}) as opened:
        yield opened


class TestTokensWithTheFinish:
    """S10."""

    async def test_they_are_told_with_it(self, world: World) -> None:
        """Three, and two with the reason; the repeated three are nothing new, and usage is exact."""
        served = await ask(world, (10,), max_tokens=5)
        assert served.tokens == [5, 6, 7, 8, 9]
        assert served.chunks[-1]["token_ids"][-2:] == [8, 9]
        assert served.finish_reasons == ["length"]
        usage = served.chunks[-1].get("completion_usage")
        assert usage is not None
        assert [usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]] == [1, 5, 6]

    async def test_one_that_is_finished_at_once(self, world: World) -> None:
        """One chunk has all of it."""
        served = await ask(world, (11,), max_tokens=5)
        assert (served.tokens, served.finish_reasons) == ([5], ["length"])

    async def test_a_result_without_outputs_still_has_a_last_word(self, world: World) -> None:
        """An error of its own type; a stream never ends without one."""
        served = await ask(world, (12,), max_tokens=5)
        assert isinstance(served.error, GenerationFailed)
        assert served.terminals == 1
        await check_next(world)


class TestTwoChoices:
    """S11."""

    async def test_each_is_told_to_its_end(self, world: World) -> None:
        """In any order; the stream goes on after one has ended, and their tokens are counted once."""
        visit = world.ask(prompt=(20,), n=2, temperature=0.8, max_tokens=6)
        served = await answer(visit)
        assert (served.tokens_of(0), served.tokens_of(1)) == ([7, 8, 9, 9, 9, 9], [5, 6])
        assert world.listener.stories[visit.id].finish_reasons == ("length", "eos")
        usage = served.chunks[-1].get("completion_usage")
        assert usage is not None
        assert usage["completion_tokens"] == 8

    async def test_greedy_ones_are_refused_at_the_door(self, world: World) -> None:
        """With the name of the variable that would allow them."""
        served = await ask(world, (20,), n=2, temperature=0.0, max_tokens=6)
        assert isinstance(served.error, InvalidRequest)
        assert "TLLM_ALLOW_N_GREEDY_DECODING" in str(served.error)

    async def test_a_cancel_ends_only_what_is_open(self, world: World) -> None:
        """The choice that had ended keeps its reason."""
        visit = world.ask(prompt=(21,), n=2, temperature=0.8, max_tokens=500)
        with anyio.fail_after(PATIENCE_S):
            while not visit.reader.tokens_of(0):
                await visit.reader.read()
        await visit.leave()
        await answer(visit)
        story = world.listener.stories[visit.id]
        assert story.outcome is Outcome.CANCELLED
        assert story.cancel_reason is CancelReason.CLIENT
        assert story.finish_reasons[1] == "eos"
        assert visit.reader.tokens_of(1) == [5, 6]
        await check_next(world)


class TestFaultsOfOne:
    """S12 c and e."""

    @pytest.mark.parametrize("prompt", [(30,), (31,)], ids=["memory for it", "its data"])
    async def test_only_it_fails(self, world: World, prompt: tuple[int, ...]) -> None:
        """By its own cause, and the worker stays; the words are ours, as theirs may quote a request."""
        running = world.ask(max_tokens=60, ignore_eos=True)
        visit = world.ask(prompt=prompt, max_tokens=5)
        served = await answer(visit)
        assert isinstance(served.error, GenerationFailed)
        assert "memory" not in str(served.error)
        assert "range" not in str(served.error)
        story = world.listener.stories[visit.id]
        assert (story.outcome, story.failure_cause) == (Outcome.FAILED, FailureCause.ENGINE)
        assert (await answer(running)).tokens == ids(60)
        await check_next(world)
        assert not world.crashes


DEATHS: dict[str, dict[str, Any]] = {
    "a: health says no": {"unhealthy_from_check": 3},
    "b: its process ends": {"dies_at_step": 5},
    "d: a device fault": {"traps": [{"prompt": [9], "late_error": "CUDA error: an illegal memory access"}]},
    "d: a poisoned pool": {
        "traps": [{"prompt": [9], "late_error": "buffer pool poisoned, restart required"}]
    },
}


@pytest.mark.parametrize("name", DEATHS)
async def test_a_death_fails_everybody_so_that_they_can_move(folder: Path, name: str) -> None:
    """S12: one crash of the graph, and everybody who is live is told that the engine is gone."""
    worlds: list[World] = []

    async def run_to_its_end() -> None:
        async with open_reports(config_of(folder, max_seq_len=2000), DEATHS[name]) as world:
            worlds.append(world)
            for prompt in ((9,), (1, 2), (1, 3)):
                world.ask(prompt=prompt, max_tokens=1900, ignore_eos=True)
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup), anyio.fail_after(PATIENCE_S):
        await run_to_its_end()
    (world,) = worlds
    assert len(world.crashes) == 1
    for visit in world.visits:
        served = await answer(visit)
        assert isinstance(served.error, EngineShutdown)
        assert served.tokens == ids(len(served.tokens))
        assert served.finish_reasons == []
        story = world.listener.stories[visit.id]
        assert (story.outcome, story.failure_cause) == (Outcome.FAILED, FailureCause.DEAD)
