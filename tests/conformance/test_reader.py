"""The kit can fail: an engine that breaks a promise is caught by the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from protocols.engine import EngineInfo
from protocols.spec import Output
from protocols.steps import (
    Candidate,
    Delta,
    EngineId,
    EngineStep,
    FinishReason,
    KvRemoved,
    KvStored,
    RankBlocks,
)
from tests.conformance.check_engine import open_reader
from tests.conformance.heard_blocks import HeardBlocks
from tests.conformance.promises_cache import CachePromises
from tests.conformance.reader import Heard, changed, make_spec
from tests.doubles.engines import (
    EndsWithoutReason,
    MalformedTokens,
    RepeatsLast,
    SpeaksAfterLast,
    SteppingEngine,
    UnknownId,
    engine_info,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.engine import Engine
    from protocols.steps import KvEvent

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_good_engine_passes() -> None:
    """The double that the hostile ones are made from breaks no promise."""
    async with open_reader(SteppingEngine(step_s=0)) as reader:
        heard = await reader.complete(make_spec(n=2))
        assert [len(tokens) for tokens in heard.token_ids] == [8, 8]


@pytest.mark.parametrize(
    ("engine", "complaint"),
    [
        (EndsWithoutReason(), "not all choices have ended"),
        (MalformedTokens(MalformedTokens.NEGATIVE), "not in the vocabulary"),
        (MalformedTokens(MalformedTokens.BEYOND_VOCABULARY), "not in the vocabulary"),
        (MalformedTokens(MalformedTokens.WRONG_TYPE), "not an int"),
        (RepeatsLast(), "after the request's last delta"),
        (SpeaksAfterLast(), "after the request's last delta"),
        (UnknownId(), "never submitted"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_hostile_engine_is_caught(engine: Engine, complaint: str) -> None:
    """Each broken promise fails the test, in words."""
    with pytest.raises(AssertionError, match=complaint):
        async with open_reader(engine) as reader:
            await reader.complete(make_spec())


@pytest.mark.parametrize(
    ("deltas", "complaint"),
    [
        ([{"token_ids": [1] * 9}], "more than max_tokens"),
        ([{"token_ids": [1], "index": 1}], "not asked for"),
        (
            [{"token_ids": [1], "finish_reason": FinishReason.STOP}, {"token_ids": [1]}],
            "after its choice ended",
        ),
        ([{"token_ids": [1]}, {"token_ids": [1], "cached_tokens": 1}], "on the first delta"),
        ([{"token_ids": [1], "cached_tokens": 4}], "more cached than there is prompt"),
        ([{"token_ids": [9]}], "a stop id before min_tokens"),
        ([{"token_ids": [1, 9, 1]}], "went on after a stop id"),
        ([{"token_ids": [], "error": "no"}], "an error ends the request"),
    ],
)
def test_a_wrong_delta_is_caught(deltas: list[dict[str, Any]], complaint: str) -> None:
    """Promises about single deltas, each with the smallest thing that breaks it."""
    spec = make_spec(min_tokens=1, stop_token_ids=frozenset({9}))
    heard = Heard(EngineId(1), spec, [[]])
    *good, bad = [Delta(heard.engine_id, **delta) for delta in deltas]
    for delta in good:
        heard.on_delta(delta, vocab_size=100)
    with pytest.raises(AssertionError, match=complaint):
        heard.on_delta(bad, vocab_size=100)


OWN, RIVAL, OTHER = Candidate(1, -1.0, 2), Candidate(5, -0.5, 1), Candidate(6, -2.0, 3)
PROMPT_TOLD: list[Any] = [None, [Candidate(6, -0.1, 1)], [Candidate(7, -0.1, 1)]]


@pytest.mark.parametrize(
    ("positions", "prompt", "complaint"),
    [
        (None, PROMPT_TOLD, "no logprobs, and they were asked for"),
        ([], PROMPT_TOLD, "another number of positions"),
        ([[RIVAL, OWN]], PROMPT_TOLD, "not the token that stands there"),
        ([[OWN, RIVAL, OTHER, Candidate(7, -3.0, 4)]], PROMPT_TOLD, "more rivals"),
        ([[OWN]], PROMPT_TOLD, "fewer rivals"),
        ([[OWN, OTHER, RIVAL]], PROMPT_TOLD, "out of order"),
        ([[OWN, RIVAL, RIVAL]], PROMPT_TOLD, "twice"),
        ([[OWN, Candidate(5, -0.5, 3)]], PROMPT_TOLD, "ranks lie"),
        ([[Candidate(1, float("nan"), 2), RIVAL]], PROMPT_TOLD, "not a number"),
        ([[Candidate(1, 0.5, 2), RIVAL]], PROMPT_TOLD, "more likely than certain"),
        ([[Candidate(1, -1.0, 0), RIVAL]], PROMPT_TOLD, "no rank"),
        ([[OWN, RIVAL]], None, "no logprobs of the prompt"),
        ([[OWN, RIVAL]], [[OWN], *PROMPT_TOLD[1:]], "prompt's first token"),
        ([[OWN, RIVAL]], [*PROMPT_TOLD[:2], PROMPT_TOLD[1]], "not the token that stands there"),
        ([[OWN, RIVAL]], PROMPT_TOLD[:2], "another number of positions"),
    ],
)
def test_a_wrong_logprob_is_caught(positions: Any, prompt: Any, complaint: str) -> None:
    """For a request that asked for two rivals of each token, and for none of its prompt's."""
    spec = changed(make_spec(), output=Output(logprobs=2, prompt_logprobs=0))
    delta = Delta(EngineId(1), [1], positions=positions, prompt_positions=prompt)
    with pytest.raises(AssertionError, match=complaint):
        Heard(EngineId(1), spec, [[]]).on_delta(delta, vocab_size=100)


def stored(*hashes: int, parent: int | None = None, **changes: Any) -> KvStored:
    facts: dict[str, Any] = {"token_ids": (1, 2) * len(hashes), "block_tokens": 2, **changes}
    return KvStored(block_hashes=hashes, parent_hash=parent, **facts)


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([stored(1), stored(1)], "stored twice"),
        ([stored(2, parent=1)], "before its parent"),
        ([stored(1, token_ids=(1,))], "not full"),
        ([stored(1, block_tokens=3, token_ids=(1, 2, 3))], "another size"),
        ([stored(-1)], "no 64 bits"),
        ([KvRemoved(block_hashes=(1,))], "nobody knew"),
        ([stored(1, 2), KvRemoved(block_hashes=(1,))], "before its children"),
        ([stored(1, 2, 3, 4, 5)], "than there are"),
    ],
)
def test_a_wrong_event_is_caught(events: list[KvEvent], complaint: str) -> None:
    """In a cache of four blocks of two tokens."""
    with pytest.raises(AssertionError, match=complaint):
        HeardBlocks(SMALL).on_step(EngineStep([], 0.0, 0.0, kv_events=tuple(events)))


SMALL = EngineInfo(
    model="m", context_length=64, max_num_seqs=2, vocab_size=100, block_tokens=2, total_blocks=4
)


def of_rank(rank: int, used: int) -> RankBlocks:
    return RankBlocks(rank=rank, used=used, total=4)


@pytest.mark.parametrize(
    ("used", "ranks", "complaint"),
    [
        (9, (), "than there are"),
        (7, (of_rank(0, 2), of_rank(1, 4)), "do not add up"),
        (7, (of_rank(0, 2), of_rank(1, 5)), "more than it has"),
        (4, (of_rank(0, 2), of_rank(2, 2)), "does not exist"),
        (4, (of_rank(1, 2), of_rank(0, 2)), "out of order"),
    ],
)
def test_a_wrong_count_is_caught(used: int, ranks: tuple[RankBlocks, ...], complaint: str) -> None:
    """In two caches of four blocks each: what is told of all is compared with both."""
    info = msgspec.structs.replace(SMALL, data_parallel_size=2)
    HeardBlocks(info).on_step(EngineStep([], 0.0, 0.0, used_blocks=8, ranks=(of_rank(0, 4), of_rank(1, 4))))
    with pytest.raises(AssertionError, match=complaint):
        HeardBlocks(info).on_step(EngineStep([], 0.0, 0.0, used_blocks=used, ranks=ranks))


class CountingEngine(SteppingEngine):
    """With a cache, of which it tells what ``count`` makes of the requests that go on."""

    def __init__(self, count: Callable[[int], int]) -> None:
        super().__init__(step_s=0)
        self._count = count
        info = engine_info(context_length=64)
        self.info = msgspec.structs.replace(info, block_tokens=4, total_blocks=100)

    def emit(self, *deltas: Delta, **facts: Any) -> None:
        going_on = len(self.live) - sum(delta.is_last for delta in deltas)
        super().emit(*deltas, used_blocks=self._count(going_on), **facts)


async def check_counts(count: Callable[[int], int]) -> None:
    async with open_reader(CountingEngine(count)) as reader:
        await CachePromises().test_used_blocks_rise_and_fall_with_requests(reader)


async def test_counts_that_do_not_follow_requests_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always nothing, or for ever what the last request held. Who has no cache need not tell any."""
    await check_counts(lambda going_on: going_on)
    with pytest.raises(AssertionError, match="hold no blocks"):
        await check_counts(lambda _: 0)
    # Nothing more comes from an engine at rest, however long one waits.
    monkeypatch.setattr("tests.conformance.reader.STEP_LIMIT_S", 0.01)
    with pytest.raises(TimeoutError):
        await check_counts(lambda going_on: max(1, going_on))
    async with open_reader(SteppingEngine(step_s=0)) as reader:
        await CachePromises().test_used_blocks_rise_and_fall_with_requests(reader)
