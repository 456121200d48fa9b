"""Who is refused by a library that has just died can be served elsewhere, and is told so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.life.health import HealthPoll
from protocols.errors import EngineDead
from protocols.spec import Stage
from protocols.steps import Delta, EngineId
from tests.actors.engines.trtllm.running_world import Engine, empty_engine
from tests.actors.engines.trtllm.scripted import Output, spec
from tests.actors.engines.trtllm.scripted_llm import ScriptedLLM
from tests.actors.engines.trtllm.trap_world import PLAIN, config_of, death_of, open_trapped
from tests.conformance.reader import make_spec

if TYPE_CHECKING:
    from pathlib import Path

    from actors.engines.trtllm.library import Library

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

Make = Callable[..., Engine]
# What a library says whose engine has gone before it knows that itself.
UNNOTICED = [RuntimeError("cannot send"), BrokenPipeError(), EOFError(), KeyError("worker")]


@pytest.fixture
def make(library: Library) -> Make:
    """``make()``: an engine with nothing in it."""
    return partial(empty_engine, library)


async def settled() -> None:
    """Whatever can go on without an answer from outside has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("exc", UNNOTICED, ids=lambda exc: type(exc).__name__)
async def test_a_death_that_is_noticed_after_the_call_is_everybodys(make: Make, exc: Exception) -> None:
    """Nothing is said of the request itself, so that a frontend moves it."""
    engine, cause = make(), RuntimeError("a worker has gone")
    engine.llm.errors = [exc, exc]
    engine.running.submit(EngineId(1), spec())
    assert not engine.deaths
    engine.llm.break_for_good(cause)
    await settled()
    assert engine.deaths == [cause]
    engine.steps.fail(cause)
    with pytest.raises(EngineDead):
        await engine.heard()


async def test_an_engine_that_lives_has_refused_one_request(make: Make) -> None:
    """By the kind of the error, not by its words; others are served."""
    engine = make()
    engine.llm.errors = [RuntimeError("the prompt: secret"), RuntimeError("the prompt: secret")]
    engine.running.submit(EngineId(1), spec())
    output = engine.submit(2)
    output.show(Output([5], "stop"), finished=True)
    deltas = await engine.heard(2)
    (refused,) = [delta for delta in deltas if delta.engine_id == 1]
    assert refused == Delta(
        EngineId(1), [], is_last=True, error="the engine refused the request (RuntimeError)"
    )
    assert engine.doubts
    assert not engine.deaths
    await asyncio.sleep(0)
    assert engine.running.running == 0


async def test_what_was_handed_over_is_not_asked_for_twice(make: Make) -> None:
    """It may have been fetched by the first call; whether the engine lives is looked at all the same."""
    engine = make(role=Stage.DECODE)
    executor = engine.llm._executor
    executor._last_client_id, executor.abort_request = 4, [].append

    def send_and_fail(**_: Any) -> None:
        executor._last_client_id += 1
        raise RuntimeError("cannot send")

    engine.llm.generate_async = send_and_fail  # type: ignore[assignment]
    engine.running.submit(EngineId(1), spec(stage=Stage.DECODE, handoff=object()))
    (refused,) = await engine.heard()
    assert refused.is_last
    assert executor._last_client_id == 5


async def test_a_stop_leaves_no_doubt_behind(make: Make) -> None:
    """Health may be asked for a second, and nobody listens any more."""

    async def never() -> BaseException | None:
        await asyncio.Event().wait()
        return None

    engine = make(look=never)
    engine.llm.errors = [RuntimeError("cannot send"), RuntimeError("cannot send")]
    before = asyncio.all_tasks()
    engine.running.submit(EngineId(1), spec())
    await asyncio.sleep(0)
    assert asyncio.all_tasks() != before
    await engine.running.stop()
    assert asyncio.all_tasks() == before
    assert not engine.deaths


class SlowlyDead(ScriptedLLM):
    """Well for so many looks, and not after them."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def _check_health(self) -> bool:
        self.looks -= 1
        return self.looks >= 0


async def test_health_is_asked_until_a_death_would_have_been_noticed() -> None:
    """The first answers may still be that all is well."""
    poll = HealthPoll(SlowlyDead(3), lambda _: None, noticed_s=30.0)
    assert isinstance(await poll.look_on(), EngineDead)


async def test_health_that_does_not_answer_is_no_death() -> None:
    """And keeps nobody waiting."""
    blocked = asyncio.Event()
    poll = HealthPoll(ScriptedLLM(), lambda _: None, noticed_s=0.0)

    async def stuck() -> None:
        await blocked.wait()

    poll.look = stuck  # type: ignore[method-assign]
    assert await poll.look_on() is None


@pytest.mark.usefixtures("double")
async def test_the_whole_driver_says_that_it_is_dead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call meets what its process has left behind; a moment later the library knows that it has gone."""

    def meet_nobody(**_: Any) -> None:
        raise BrokenPipeError("nobody reads there")

    async with open_trapped(config_of(folder), {"unhealthy_from_check": 4}) as reader:
        engine: Any = reader.engine
        monkeypatch.setattr(engine._loading.loaded.llm, "generate_async", meet_nobody)
        refused = reader.submit(make_spec(PLAIN))
        dead = await death_of(reader)
        assert dead.__cause__ is not None
        assert not refused.is_ended
