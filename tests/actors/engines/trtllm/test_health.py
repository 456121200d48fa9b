"""A dead engine is noticed soon, once, and with its cause; one that may live is left alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engines.trtllm.life.health import HealthPoll, cause_of_death, known_fault
from protocols.errors import EngineDead
from tests.actors.engines.trtllm.scripted_llm import ScriptedLLM

pytestmark = pytest.mark.anyio


def test_the_librarys_own_cause_is_told() -> None:
    """The first fatal error it noted."""
    llm, cause = ScriptedLLM(), RuntimeError("a worker has gone")
    assert cause_of_death(llm) is None
    llm.break_for_good(cause)
    assert cause_of_death(llm) is cause


def test_an_engine_that_is_not_well_and_says_no_more() -> None:
    """Is dead all the same."""
    llm = ScriptedLLM()
    llm.is_well = False
    assert isinstance(cause_of_death(llm), EngineDead)


def test_what_the_library_knows_without_looking() -> None:
    """Shut down, shutting down, or neither."""
    assert isinstance(known_fault(SimpleNamespace(_executor=None)), EngineDead)
    executor: Any = SimpleNamespace(_fatal_error=None, is_shutdown=lambda: True)
    assert isinstance(known_fault(SimpleNamespace(_executor=executor)), EngineDead)
    assert known_fault(ScriptedLLM()) is None


def test_a_check_that_raises_is_a_death() -> None:
    """Of an executor that is half gone."""

    def broken() -> bool:
        raise AttributeError("mpi_futures")

    assert isinstance(cause_of_death(SimpleNamespace(_check_health=broken)), AttributeError)


class HalfGone(ScriptedLLM):
    """Says that it is not well, and cannot say why: what it asks is no longer there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_well = False
        self._executor = SimpleNamespace(_fatal_error=None, is_shutdown=self._fail)

    def _fail(self) -> bool:
        raise AttributeError("doing_shutdown")


async def test_a_poll_of_what_is_half_gone_tells_a_death() -> None:
    """Whichever question it is that fails: a poll that just ended would leave everybody waiting."""
    told: list[BaseException] = []
    await asyncio.wait_for(HealthPoll(HalfGone(), told.append).run(), 10)
    (cause,) = told
    assert isinstance(cause, AttributeError)
    assert isinstance(known_fault(HalfGone()), AttributeError)


async def test_a_machine_without_threads_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor the end of the poll: as soon as there is one again, it looks."""
    llm, cause = ScriptedLLM(), RuntimeError("a worker has gone")
    llm.break_for_good(cause)
    told: list[BaseException] = []
    poll = HealthPoll(llm, told.append, every_s=3600.0)

    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr("threading.Thread.start", refuse)
        task = asyncio.create_task(poll.run())
        await asyncio.sleep(0)
        assert await poll.look() is None
    assert not task.done()
    poll.look_soon()
    await asyncio.wait_for(task, 10)
    assert told == [cause]


async def test_a_doubt_is_looked_into_at_once() -> None:
    """Without waiting for the next poll, which here never comes; and a death is told once."""
    llm = ScriptedLLM()
    told: asyncio.Queue[BaseException] = asyncio.Queue()
    poll = HealthPoll(llm, told.put_nowait, every_s=3600.0)
    task = asyncio.create_task(poll.run())
    poll.look_soon()
    await asyncio.sleep(0)
    cause = RuntimeError("a worker has gone")
    llm.break_for_good(cause)
    poll.look_soon()
    assert await asyncio.wait_for(told.get(), 10) is cause
    await asyncio.wait_for(task, 10)
    assert told.empty()
