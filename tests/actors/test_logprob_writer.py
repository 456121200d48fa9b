"""Promises about logprobs on their way out: every value stands beside its own token, or none does."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.logprob_writer import LEAST_LOGPROB, LogprobWriter
from actors.outbox import Outbox, Terminal
from actors.wakeup import EventWakeup
from protocols.engine import EngineCapabilities
from protocols.steps import Candidate, Delta, EngineId, FinishReason, Position
from tests.doubles.callers import PROMPT, Reader
from tests.doubles.engines import ScriptedEngine
from tests.doubles.scheduling import run_seeded

if TYPE_CHECKING:
    from protocols.chunks import GenerateChunk
    from tests.conftest import OpenWorld

ID = EngineId(1)
CAP = 4
END = Terminal(finish_reason=FinishReason.LENGTH)


def logprob_of(token: int) -> float:
    """A value that only this token has."""
    return -token / 64


def position_of(token: int, rivals: int = 1) -> Position:
    """The token itself at rank 3, and rivals of its own before it."""
    others = [Candidate(token + 1000 + place, -0.25 - place, place + 1) for place in range(rivals)]
    return [Candidate(token, logprob_of(token), 3), *others]


def new_outbox(prompt_positions: list[Position | None] | None = None) -> Outbox:
    outbox = Outbox(EventWakeup(), lambda: 0.0, CAP, lambda: None)
    outbox.bound_tokens = 1000
    outbox.logprobs = LogprobWriter()
    outbox.logprobs.prompt_positions = prompt_positions
    return outbox


def read(outbox: Outbox) -> list[GenerateChunk]:
    """Everything there is, up to the last word."""
    reader = Reader(outbox)
    run_seeded(reader.read_to_end)
    return reader.chunks


def test_a_chunk_says_of_each_token_how_likely_it_was_and_what_else_was() -> None:
    """The chosen one's own value, the candidates by rank with the chosen one among them, the sum so far."""
    outbox = new_outbox()
    outbox.put(Delta(ID, [7], positions=[position_of(7, rivals=2)]), 0.0)
    outbox.finish(END)
    (chunk,) = read(outbox)
    assert chunk["log_probs"] == [logprob_of(7)]
    assert chunk["top_logprobs"] == [
        [
            {"rank": 1, "token_id": 1007, "token": None, "logprob": -0.25},
            {"rank": 2, "token_id": 1008, "token": None, "logprob": -1.25},
            {"rank": 3, "token_id": 7, "token": None, "logprob": logprob_of(7)},
        ]
    ]
    assert chunk["cum_log_probs"] == logprob_of(7)


def test_a_missing_value_is_never_another_tokens() -> None:
    """Its chunk has no logprobs at all; the neighbours' chunks keep theirs; sums end with the first gap."""
    outbox = new_outbox()
    for token, position in ((1, position_of(1)), (2, []), (3, position_of(3))):
        outbox.put(Delta(ID, [token], positions=[position]), 0.0)
    outbox.finish(END)
    chunks = read(outbox)
    assert [chunk["token_ids"] for chunk in chunks] == [[1], [2], [3]]
    assert [chunk.get("log_probs") for chunk in chunks] == [[logprob_of(1)], None, [logprob_of(3)]]
    assert ["top_logprobs" in chunk for chunk in chunks] == [True, False, True]
    assert ["cum_log_probs" in chunk for chunk in chunks] == [True, False, False]


@pytest.mark.parametrize("impossible", [-math.inf, -1e30])
def test_what_json_cannot_say_is_said_as_everybody_says_it(impossible: float) -> None:
    """Minus infinity has OpenAI's number, in outputs and in prompts, and there is no sum of it."""
    prompt: list[Position | None] = [None, [Candidate(5, impossible, 9)]]
    outbox = new_outbox(prompt)
    outbox.put(Delta(ID, [7], positions=[[Candidate(7, impossible, 9), Candidate(8, 1e-7, 1)]]), 0.0)
    outbox.finish(END)
    (chunk,) = read(outbox)
    assert chunk["log_probs"] == [LEAST_LOGPROB]
    assert [entry["logprob"] for entry in chunk["top_logprobs"][0]] == [0.0, LEAST_LOGPROB]
    assert chunk["engine_data"]["prompt_logprobs"][1] == {"5": {"logprob": LEAST_LOGPROB, "rank": 9}}
    json.dumps(chunk, allow_nan=False)


def test_the_prompts_come_on_the_last_chunk_and_once() -> None:
    """One entry for each prompt token, nothing for the first and for what the engine does not know."""
    outbox = new_outbox([None, position_of(5), []])
    for token in range(6):
        outbox.put(Delta(ID, [token], positions=[position_of(token)]), 0.0)
    outbox.finish(END)
    *others, last = read(outbox)
    assert not any("engine_data" in chunk for chunk in others)
    first = {"5": {"logprob": logprob_of(5), "rank": 3}, "1005": {"logprob": -0.25, "rank": 1}}
    assert last["engine_data"] == {"prompt_logprobs": [None, first, {}]}


Puts = st.lists(st.tuples(st.integers(0, 2), st.lists(st.booleans(), max_size=6)), max_size=20)


@given(puts=Puts, reads=st.lists(st.integers(0, 20), max_size=8))
def test_any_mix_of_choices_and_gaps_keeps_every_value_beside_its_token(
    puts: list[tuple[int, list[bool]]], reads: list[int]
) -> None:
    """Lists as long as the ids or not there; a value lost only to a gap in its own delta; sums per choice."""
    outbox = new_outbox()
    whole: set[int] = set()
    reader = Reader(outbox)

    async def play() -> None:
        token = 0
        for number, (index, known) in enumerate(puts):
            ids = list(range(token, token + len(known)))
            token += len(known)
            positions = [position_of(i) if is_known else [] for i, is_known in zip(ids, known, strict=True)]
            if all(known):
                whole.update(ids)
            outbox.put(Delta(ID, ids, index, positions=positions), 0.0)
            if number in reads and outbox.waiting_tokens:
                await reader.read()
        outbox.finish(END)
        await reader.read_to_end()

    run_seeded(play)
    sums: dict[int, float] = {}
    for chunk in reader.chunks:
        check_chunk(chunk, whole, sums)


def check_chunk(chunk: GenerateChunk, whole: set[int], sums: dict[int, float]) -> None:
    """One chunk against what only its own tokens can have."""
    ids, index = chunk["token_ids"], chunk["index"]
    if not ids:
        assert "log_probs" not in chunk
        return
    assert ("log_probs" in chunk) == ("top_logprobs" in chunk) == whole.issuperset(ids)
    assert whole.issuperset(ids) or whole.isdisjoint(ids)
    if "log_probs" not in chunk:
        sums[index] = math.nan
        assert "cum_log_probs" not in chunk
        return
    assert chunk["log_probs"] == [logprob_of(token) for token in ids]
    assert [[entry["token_id"] for entry in entries] for entries in chunk["top_logprobs"]] == [
        [token + 1000, token] for token in ids
    ]
    sums[index] = sums.get(index, 0.0) + sum(chunk["log_probs"])
    if math.isnan(sums[index]):
        assert "cum_log_probs" not in chunk
    else:
        assert chunk["cum_log_probs"] == sums[index]


TELLS = EngineCapabilities(can_pause=True, max_n=2, max_logprobs=20, no_prompt_logprobs="")


@pytest.mark.anyio
class TestInTheGraph:
    async def test_who_asked_is_told(self, open_world: OpenWorld) -> None:
        """From the engine's delta to the reader's chunk, per choice, the prompt's at the very end."""
        async with open_world(ScriptedEngine(capabilities=TELLS)) as world:
            visit = await world.ask_settled(n=2, logprobs=1, prompt_logprobs=0, max_tokens=4)
            prompt: list[Position | None] = [None, *(position_of(token, rivals=0) for token in PROMPT[1:])]
            first = Delta(visit.id, [11], 0, positions=[position_of(11)], prompt_positions=prompt)
            world.engine.emit(first, Delta(visit.id, [21], 1, positions=[position_of(21)]))
            world.engine.emit(
                Delta(visit.id, [22], 1, FinishReason.EOS, positions=[position_of(22)]),
                Delta(visit.id, [12], 0, FinishReason.EOS, is_last=True, positions=[position_of(12)]),
            )
            chunks = (await visit.answer()).chunks
            told = [(chunk["index"], chunk["token_ids"], chunk["log_probs"]) for chunk in chunks]
            assert told == [
                (index, ids, [logprob_of(token) for token in ids])
                for index, ids in ((0, [11]), (1, [21, 22]), (0, [12]))
            ]
            assert chunks[-1]["cum_log_probs"] == logprob_of(11) + logprob_of(12)
            assert [entry and list(entry) for entry in chunks[-1]["engine_data"]["prompt_logprobs"]] == [
                None,
                *([str(token)] for token in PROMPT[1:]),
            ]

    async def test_who_did_not_ask_is_not(self, open_world: OpenWorld) -> None:
        """Whatever an engine says beside the tokens."""
        async with open_world(ScriptedEngine(capabilities=TELLS)) as world:
            visit = await world.ask_settled(max_tokens=4)
            extra: dict[str, Any] = {"positions": [position_of(11)], "prompt_positions": [None]}
            end: dict[str, Any] = {"finish_reason": FinishReason.EOS, "is_last": True}
            world.engine.emit(Delta(visit.id, [11], 0, **end, **extra))
            (chunk,) = (await visit.answer()).chunks
            assert chunk.keys() == {"token_ids", "index", "finish_reason", "completion_usage"}

    async def test_an_engine_that_tells_another_tokens_value_fails_the_request(
        self, open_world: OpenWorld
    ) -> None:
        """A wrong number is worse than none: the request ends, the worker goes on."""
        async with open_world(ScriptedEngine(capabilities=TELLS)) as world:
            visit = await world.ask_settled(logprobs=0, max_tokens=4)
            world.engine.emit(Delta(visit.id, [11], positions=[position_of(12)]))
            answer = await visit.answer()
            assert answer.tokens == []
            assert "logprob" in str(answer.error)
            other = await world.ask_settled(max_tokens=4)
            world.engine.finish(other.id, FinishReason.EOS, [1])
            assert (await other.answer()).tokens == [1]
