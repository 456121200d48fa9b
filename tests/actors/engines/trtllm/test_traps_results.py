"""Traps of results: cumulative lists that shrink, ends without a word, errors that look like success.

Every one of them closes on a request that runs beside another, which shall notice nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from protocols.spec import GenerationSpec, Output, Sampling, StopRules
from protocols.steps import FinishReason
from tests.actors.engines.trtllm.trap_world import (
    begin_neighbour,
    check_untouched,
    config_of,
    ids,
    open_trapped,
    outcome,
)
from tests.conformance.reader import EngineReader, Heard
from tests.doubles.trtllm_llms import write_folder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]

FAILED = "the engine failed on this request (RequestError)"
EOS, LENGTH, STOP, CANCELLED = (
    FinishReason.EOS,
    FinishReason.LENGTH,
    FinishReason.STOP,
    FinishReason.CANCELLED,
)


@dataclass(frozen=True)
class Case:
    """A trap, and what is heard: tokens and reason of each choice, or an error after the tokens.

    most, n, stop: of the request. says: that of the trap, if it dictates.
    """

    name: str
    trap: dict[str, Any]
    tokens: list[list[int]]
    reasons: dict[int, FinishReason] = field(default_factory=lambda: {0: LENGTH})
    error: str | None = None
    stop_reasons: dict[int, int] = field(default_factory=dict[int, int])
    most: int = 5
    n: int = 1
    stop: frozenset[int] = frozenset()


def says(*responses: dict[str, Any]) -> dict[str, Any]:
    return {"says": list(responses)}


CASES = [
    Case("an error before any token", {"late_error": "no"}, [[]], error=FAILED, reasons={}),
    Case("an error after a token", {"late_error": "no", "late_error_after": 2}, [ids(1)], {}, FAILED),
    Case("out of memory for one", {"late_error": "CUDA out of memory"}, [[]], error=FAILED, reasons={}),
    Case("all at the end", {"only_at_finish": True}, [ids(5)]),
    Case(
        "the engine's own time-out", {"timeout_after": 2}, [ids(2)],
        error="the engine's own time-out for a request passed", reasons={},
    ),
    Case(
        "no outputs at all", {"has_no_outputs": True}, [ids(4)],
        error="the engine ended the request without an answer", reasons={},
    ),
    Case(
        "a list that shrinks at a stop word", {"shrinks_by": 2}, [ids(4)], {0: STOP},
        stop_reasons={0: 1003}, most=9, stop=frozenset({1003}),
    ),
    Case(
        "three, the same three, and two with the end",
        says({"ids": [5, 6, 7]}, {}, {"ids": [8, 9], "finish": "LENGTH"}), [[5, 6, 7, 8, 9]],
    ),
    Case("one that is finished at once", says({"ids": [5], "finish": "LENGTH"}), [[5]]),
    Case("an end without a token", says({"finish": "END_ID"}), [[]], {0: EOS}),
    Case(
        "an end without a reason", says({"ids": [5]}, {"ids": [6]}), [[5, 6]],
        error="the engine ended the request without a reason", reasons={},
    ),
    Case("cancelled by nobody", says({"ids": [5]}, {"finish": "CANCELLED"}), [[5]], {0: CANCELLED}),
    Case(
        "two choices that end one after the other",
        says(
            {"index": 1, "ids": [5, 6], "finish": "END_ID"}, {"ids": [7, 8]}, {"ids": [9], "finish": "LENGTH"}
        ),
        [[7, 8, 9], [5, 6]], {0: LENGTH, 1: EOS}, n=2,
    ),
    Case(
        "a choice that ends, and a request that fails",
        says({"index": 1, "ids": [5], "finish": "END_ID"}, {"ids": [7], "finish": "TIMED_OUT"}),
        [[7], [5]], {1: EOS}, error="the engine's own time-out for a request passed", n=2,
    ),
]  # fmt: skip


def prompt_of(place: int) -> tuple[int, int, int]:
    """By which its trap knows a case."""
    return (100 + place, 6, 7)


@pytest.fixture(scope="module")
async def reader(
    anyio_backend: object, double: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EngineReader]:
    """One engine with all traps."""
    traps: list[dict[str, Any]] = [
        {"prompt": prompt_of(place), **case.trap} for place, case in enumerate(CASES)
    ]
    traps += [{"prompt": [200 + place], **trap} for place, (_, trap) in enumerate(LIKELIHOODS)]
    async with open_trapped(
        config_of(write_folder(tmp_path_factory.mktemp("model"))), {"traps": traps}
    ) as opened:
        yield opened


@pytest.mark.parametrize("place", range(len(CASES)), ids=[case.name for case in CASES])
async def test_what_is_heard_of_it(reader: EngineReader, place: int) -> None:
    """Every token once, one last word, and the true reason; whoever was beside it has lost nothing."""
    case = CASES[place]
    neighbour = begin_neighbour(reader)
    stop = StopRules(max_tokens=case.most, stop_token_ids=case.stop)
    sampling = Sampling(temperature=1.0)
    heard = reader.submit(GenerationSpec(prompt=prompt_of(place), stop=stop, sampling=sampling, n=case.n))
    await outcome(reader, heard)
    check(heard, case)
    await check_untouched(reader, neighbour)


def check(heard: Heard, case: Case) -> None:
    assert heard.token_ids == case.tokens
    assert heard.reasons == case.reasons
    assert heard.error == case.error
    assert heard.stop_reasons == case.stop_reasons


LIKELIHOODS: list[tuple[str, dict[str, Any]]] = [
    ("no ranks", {"ranks": "missing"}),
    ("ranks of zero", {"ranks": "zero"}),
    ("none for the first token", {"misses_first_logprob": True}),
]


@pytest.mark.parametrize("place", range(len(LIKELIHOODS)), ids=[name for name, _ in LIKELIHOODS])
async def test_likelihoods_that_are_half_there(reader: EngineReader, place: int) -> None:
    """Ranks begin at 1 whatever was said, and a value that is missing is never another token's."""
    heard = await reader.complete(
        GenerationSpec(
            prompt=(200 + place,),
            stop=StopRules(max_tokens=4),
            output=Output(logprobs=0, prompt_logprobs=None),
        )
    )
    positions = heard.positions[0]
    assert len(positions) == 4
    misses = "misses_first_logprob" in LIKELIHOODS[place][1]
    assert [bool(position) for position in positions] == [not misses, True, True, True]
    for token, position in zip(heard.tokens, positions, strict=True):
        assert all(candidate.rank >= 1 for candidate in position)
        assert not position or position[0].token_id == token
