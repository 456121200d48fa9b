"""Traps of the call: what the library raises at once, what it raises late, and what is somebody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from protocols.errors import EngineDead
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId, FinishReason
from tests.actors.engines.trtllm.trap_world import (
    PLAIN,
    begin_neighbour,
    check_untouched,
    config_of,
    death_of,
    ids,
    open_trapped,
    outcome,
)
from tests.conformance.reader import EngineReader, make_spec
from tests.doubles.trtllm_llms import CONTEXT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]

LEAVES = (10,)
LEAVES_LATE = (11,)
TRAPS: list[dict[str, Any]] = [
    {"prompt": LEAVES, "leaves_error": "an error of nobody in particular"},
    {"prompt": LEAVES_LATE, "leaves_error": "another"},
]


@pytest.fixture(scope="module")
async def reader(anyio_backend: object, double: None, folder: Path) -> AsyncIterator[EngineReader]:
    """One for all whom it survives."""
    adapter = folder / "adapter"
    adapter.mkdir()
    config = config_of(folder, lora_config={"lora_dir": [str(adapter)]})
    async with open_trapped(config, {"traps": TRAPS}) as opened:
        yield opened


async def test_what_one_pass_cannot_hold_is_that_requests_error(reader: EngineReader) -> None:
    """Raised at the call, twice the same: the graph would have refused it before."""
    neighbour = begin_neighbour(reader)
    with pytest.raises(RuntimeError, match="max_num_tokens"):
        reader.engine.submit(EngineId(10**6), make_spec(tuple(range(5, 5 + 65))))
    await check_untouched(reader, neighbour)


LATE: list[tuple[str, GenerationSpec]] = [
    ("no token", GenerationSpec(prompt=PLAIN, stop=StopRules(max_tokens=0))),
    ("adapter that cannot be loaded", msgspec.structs.replace(make_spec(PLAIN), adapter="adapter")),
]


@pytest.mark.parametrize(("_what", "spec"), LATE, ids=[what for what, _ in LATE])
async def test_what_fails_in_the_engine_fails_alone(
    reader: EngineReader, _what: str, spec: GenerationSpec
) -> None:
    """It comes with the result, long after the call; nothing of what was asked is in its words."""
    neighbour = begin_neighbour(reader)
    failed = reader.submit(spec)
    await outcome(reader, failed)
    assert failed.error == "the engine failed on this request (RequestError)"
    assert failed.tokens == []
    await check_untouched(reader, neighbour)


async def test_an_error_that_waits_in_the_background_is_not_the_next_callers(reader: EngineReader) -> None:
    """Nor that of whoever reads next: both get their whole answers, and so does its cause."""
    reading = begin_neighbour(reader)
    await reader.read_until(lambda: bool(reading.tokens))
    cause = reader.submit(make_spec(LEAVES, max_tokens=6))
    calling = begin_neighbour(reader)
    await reader.read_to_end(cause, calling)
    assert cause.tokens == ids(6)
    await check_untouched(reader, reading, calling)


@pytest.mark.parametrize("max_tokens", [1, 3, 40])
async def test_an_error_that_waits_in_the_background_is_not_a_readers(
    reader: EngineReader, max_tokens: int
) -> None:
    """Raised with any response, be it the last one: what came with it is told."""
    reading = [reader.submit(make_spec(PLAIN, max_tokens=max_tokens)) for _ in range(3)]
    cause = reader.submit(make_spec(LEAVES_LATE, max_tokens=max_tokens))
    await reader.read_to_end(cause, *reading)
    for each in (cause, *reading):
        assert each.tokens == ids(max_tokens)
        assert each.reason is FinishReason.LENGTH


DEADLY: list[dict[str, Any]] = [
    {"dead_at_submit": 2},
    {"traps": [{"prompt": [12], "leaves_error": "the system", "is_fatal": True}]},
]


@pytest.mark.parametrize(
    "script",
    DEADLY,
    ids=["between check and submit", "in the background"],
)
async def test_a_death_that_a_call_meets_is_everybodys(folder: Path, script: dict[str, Any]) -> None:
    """As EngineDead, with what ended it; the next call and the next step say the same."""
    async with open_trapped(config_of(folder), script) as reader:
        reader.submit(make_spec((12, 1), max_tokens=CONTEXT - 10))
        for _ in range(2):
            with pytest.raises(EngineDead) as caught:
                reader.submit(make_spec(PLAIN))
            assert caught.value.__cause__ is not None
        dead = await death_of(reader)
        assert dead.__cause__ is not None


async def test_nothing_is_called_after_the_stop(folder: Path) -> None:
    """A request that comes while the engine ends is nobody's error."""
    async with open_trapped(config_of(folder)) as reader:
        await reader.engine.stop()
        reader.submit(make_spec(PLAIN))
        assert isinstance(await death_of(reader), EngineDead)
