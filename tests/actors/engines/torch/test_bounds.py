"""Bounds of a whole engine: what one of its parts reaches is told to whoever its configuration names."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

import pytest

from protocols.bounds import Bound
from protocols.spec import GenerationSpec, ProcessorEntry, StopRules
from tests.actors.engines.torch.hostile_processors import Looping
from tests.actors.engines.torch.tiny_models import prompts

if TYPE_CHECKING:
    from tests.actors.engines.torch.conftest import Opener

pytestmark = pytest.mark.anyio


class Told:
    """Counts, from whatever thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.bounds: Counter[Bound] = Counter()

    def __call__(self, bound: Bound, count: int = 1, /) -> None:
        with self._lock:
            self.bounds[bound] += count


def spec(prompt: tuple[int, ...], tokens: int, *processors: str) -> GenerationSpec:
    """No token ends it."""
    stop = StopRules(max_tokens=tokens)
    return GenerationSpec(
        prompt=prompt, stop=stop, processors=tuple(ProcessorEntry(name=name) for name in processors)
    )


async def test_a_small_cache_and_small_steps_are_told(open_engine: Opener) -> None:
    """Sequences give way, kept blocks go, prompts take several steps; everybody gets all tokens."""
    told = Told()
    async with open_engine(
        kv_pool_tokens=96, max_seq_len=96, max_num_seqs=4, step_tokens=16, on_bound=told
    ) as reader:
        heard = [reader.submit(spec(prompt, 40)) for prompt in prompts((40, 30, 20, 33))]
        await reader.read_to_end(*heard)
        assert all(len(one.token_ids[0]) == 40 for one in heard)
    assert told.bounds.keys() - {Bound.UNDELIVERED_STEPS} == {
        Bound.KV_BLOCKS,
        Bound.KV_CACHE,
        Bound.STEP_TOKENS,
    }


async def test_a_processor_that_never_returns_is_told(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the step goes on without it, then its request is given up; each is counted once."""
    monkeypatch.setattr("actors.engines.torch.steering.GIVE_UP_S", 0.2)
    told = Told()
    async with open_engine(processors={"looping": Looping}, on_bound=told) as reader:
        heard = reader.submit(spec((5, 6, 7), 4, "looping"))
        await reader.read_until(lambda: heard.is_ended)
        assert heard.error is not None
    assert told.bounds - Counter({Bound.UNDELIVERED_STEPS: 1000}) == {
        Bound.STEP_WAIT: 1,
        Bound.FOREIGN_TIME: 1,
    }
