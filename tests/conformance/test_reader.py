"""The kit can fail: an engine that breaks a promise is caught by the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from protocols.steps import Delta, EngineId, FinishReason
from tests.conformance.check_engine import open_reader
from tests.conformance.reader import Heard, make_spec
from tests.doubles.engines import (
    EndsWithoutReason,
    MalformedTokens,
    RepeatsLast,
    SpeaksAfterLast,
    SteppingEngine,
    UnknownId,
)

if TYPE_CHECKING:
    from protocols.engine import Engine

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
