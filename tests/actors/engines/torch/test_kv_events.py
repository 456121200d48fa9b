"""What the engine tells about its cache is what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from protocols.spec import GenerationSpec, Sampling, StopRules
from protocols.steps import KvRemoved, KvStored
from tests.actors.engines.torch import tiny_models
from tests.actors.engines.torch.bookkeeping import Listener

if TYPE_CHECKING:
    from protocols.steps import KvEvent
    from tests.actors.engines.torch.conftest import Opener
    from tests.conformance.reader import EngineReader

pytestmark = pytest.mark.anyio

(TRUNK,) = tiny_models.prompts((60,))


def ask(prompt: tuple[int, ...], tokens: int = 10, n: int = 1, salt: str | None = None) -> GenerationSpec:
    return GenerationSpec(
        prompt=prompt,
        stop=StopRules(max_tokens=tokens),
        sampling=Sampling(temperature=1.0, seed=len(prompt)),
        n=n,
        cache_salt=salt,
    )


async def hear_out(reader: EngineReader, *requests: GenerationSpec) -> list[KvEvent]:
    """Everything that is told until these have ended."""
    heard = [reader.submit(request) for request in requests]
    events: list[KvEvent] = []
    while not all(request.is_ended for request in heard):
        events += (await reader.read_step()).kv_events
    return events


async def test_full_blocks_are_told_once(open_engine: Opener) -> None:
    """Prompt, then answer: full blocks only, each once, with their tokens; the same again tells nothing."""
    async with open_engine() as reader:
        heard = reader.submit(ask(TRUNK[:21]))
        events: list[KvEvent] = []
        while not heard.is_ended:
            events += (await reader.read_step()).kv_events
        again = await hear_out(reader, ask(TRUNK[:21]))
    stored = [event for event in events if isinstance(event, KvStored)]
    told = [token for event in stored for token in event.token_ids]
    # 21 + 10 tokens, the last one never computed: three blocks of 8.
    assert told == [*TRUNK[:21], *heard.tokens][:24]
    assert [event.parent_hash is None for event in stored] == [True, False]
    assert stored[1].parent_hash == stored[0].block_hashes[-1]
    assert {event.block_tokens for event in events if isinstance(event, KvStored)} == {8}
    assert again == []


async def test_a_listener_knows_what_is_there(open_engine: Opener) -> None:
    """Under pressure, with salts and choices: parents first, children away first, nothing told twice."""
    listener = Listener()
    async with open_engine(kv_pool_tokens=192, max_seq_len=96) as reader:
        for turn in range(6):
            requests = [ask(TRUNK[: 9 + 11 * i], 12, 1 + i % 3, (None, "a")[turn % 2]) for i in range(4)]
            requests.append(ask((turn, *TRUNK), 20))
            events = await hear_out(reader, *requests)
            listener.hear(tuple(events))
            assert any(isinstance(event, KvRemoved) for event in events) or turn == 0
        final = reader.submit(ask((1,), 1))
        step = await reader.read_step()
        listener.hear(step.kv_events)
    assert final.is_ended
    assert step.used_blocks == 0
    assert step.cached_blocks == len(listener.parents) > 12


async def test_equal_tokens_have_equal_hashes_in_any_engine(open_engine: Opener) -> None:
    """Two workers tell the same hashes for the same prompt, and others under another salt; one rank."""
    told: list[set[int]] = []
    for salt in (None, None, "a"):
        async with open_engine() as reader:
            events = await hear_out(reader, ask(TRUNK, 1, salt=salt))
        assert {event.rank for event in events} == {0}
        told.append({h for event in events if isinstance(event, KvStored) for h in event.block_hashes})
    assert told[0] == told[1]
    assert len(told[0]) == 7
    assert not told[0] & told[2]
