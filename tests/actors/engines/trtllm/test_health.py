"""A dead engine is noticed soon, once, and with its cause; one that may live is left alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engines.trtllm.health import HealthPoll, cause_of_death, known_fault
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
