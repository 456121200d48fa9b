"""Rows of the fault matrix on the whole graph, at full numbers: the hurt one is told, nobody else hurt."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.engines.synthetic import SyntheticConfig, SyntheticEngine
from actors.graph import open_graph
from actors.settings import GraphSettings
from actors.supervisor import FutureWakeup
from actors.surroundings import Surroundings
from protocols.errors import EngineStartError, GenerationFailed
from protocols.steps import Delta, EngineId, FinishReason
from protocols.telemetry import AbortResult, Outcome
from tests.actors.world import Visit
from tests.actors.world import open_world as open_audited
from tests.doubles.callers import FakeCaller, wire_request
from tests.doubles.engines import VOCAB_SIZE, ScriptedEngine, SteppingEngine
from tests.doubles.listeners import RecordingTelemetry
from tests.doubles.scheduling import run_seeded

if TYPE_CHECKING:
    from protocols.engine import EngineInfo
    from protocols.spec import GenerationSpec
    from tests.actors.world import World
    from tests.conftest import OpenWorld

# Full numbers: on a machine that does other things as well, some take ten times what they need.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

STREAMS = 64
TOKENS = 12


def own_tokens(engine_id: EngineId, count: int = TOKENS) -> list[int]:
    """What `Telling` says to this request and to no other."""
    return [(engine_id * 7919 + position) % VOCAB_SIZE for position in range(count)]


class Telling(SteppingEngine):
    """Says to every request tokens of its own, and spoils those that it is told to spoil at their fifth."""

    def __init__(self, max_num_seqs: int = STREAMS) -> None:
        super().__init__(max_num_seqs)
        self.spoiled: dict[EngineId, list[Delta]] = {}

    def deltas_of(self, engine_id: EngineId, spec: GenerationSpec, position: int) -> list[Delta]:
        if position == 5 and engine_id in self.spoiled:
            return self.spoiled[engine_id]
        (delta,) = super().deltas_of(engine_id, spec, position)
        token = own_tokens(engine_id, position + 1)[-1]
        return [Delta(engine_id, [token], 0, delta.finish_reason, delta.is_last)]


async def read_all(visits: list[Visit]) -> None:
    """Everybody at the same time, to the end."""
    async with anyio.create_task_group() as readers:
        for visit in visits:
            readers.start_soon(visit.answer)


async def check_alone(world: World, hurt: Visit, others: list[Visit]) -> None:
    """One typed error after five good tokens, its slot free; all others whole and exact."""
    answer = await hurt.answer()
    assert isinstance(answer.error, GenerationFailed)
    assert answer.tokens == own_tokens(hurt.id, 5)
    for visit in others:
        assert (await visit.answer()).tokens == own_tokens(visit.id)
        assert visit.ticket.outcome is Outcome.COMPLETED
    await world.settle()
    assert world.graph.executor.is_idle
    assert world.crashes == []


@pytest.mark.parametrize(
    ("tokens", "facts"),
    [
        ([], {"is_last": True, "error": "it cannot go on"}),
        ([], {"is_last": True}),
        ([], {"error": "half an end"}),
        ([VOCAB_SIZE], {}),
        ([-1], {}),
        (["1001"], {}),
        ([1.0], {}),
        ([True], {}),
        ([None], {}),
        ((1, 2), {}),
        (7, {}),
        ("text", {}),
        ([1], {"index": 1}),
        ([1], {"index": "0"}),
        ([1], {"finish_reason": "stop", "is_last": True}),
        ([1], {"finish_reason": FinishReason.STOP, "stop_reason": 1.5, "is_last": True}),
        ([1], {"cached_tokens": 5}),
        ([1], {"cached_tokens": -1}),
        ([1], {"cached_tokens": "3"}),
        (list(range(2000)), {}),
    ],
    ids=str,
)
async def test_what_an_engine_does_to_one_of_64_streams(
    open_world: OpenWorld, tokens: Any, facts: dict[str, Any]
) -> None:
    """Raised, ended without a reason, or garbage: that stream gets one typed error (rows 1, 2 and 3)."""
    engine = Telling()
    async with open_world(engine) as world:
        visits = [await world.ask_settled(max_tokens=TOKENS) for _ in range(STREAMS)]
        hurt = visits.pop(17)
        engine.spoiled[hurt.id] = [Delta(hurt.id, tokens, **facts)]
        await check_alone(world, hurt, visits)


async def test_a_thousand_ends_without_a_reason(open_world: OpenWorld) -> None:
    """Not one is taken for the end of an answer: 0 silent truncations (row 2)."""
    engine = Telling()
    async with open_world(engine, max_live=1000, outbox_tokens=64) as world:
        visits = [world.ask(max_tokens=TOKENS) for _ in range(64)]
        while len(visits) < 1000:
            await world.settle()
            visits += [world.ask(max_tokens=TOKENS) for _ in range(min(64, 1000 - len(visits)))]
        for visit in visits:
            engine.spoiled[visit.id] = [Delta(visit.id, [], is_last=True)]
        silent = 0
        for visit in visits:
            answer = await visit.answer()
            silent += answer.error is None
            assert answer.finish_reasons == []
        assert silent == 0
        assert world.outcomes() == {Outcome.FAILED: 1000}


_JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.text(max_size=3), st.binary(max_size=3)
)


@settings(max_examples=150)
@given(
    junk=st.lists(
        st.fixed_dictionaries(
            {"token_ids": st.one_of(_JUNK, st.lists(_JUNK, max_size=3))},
            optional={
                "index": _JUNK,
                "cached_tokens": _JUNK,
                "finish_reason": st.one_of(_JUNK, st.sampled_from(FinishReason)),
                "is_last": st.booleans(),
                "error": st.one_of(st.none(), st.text(max_size=5)),
                "engine_id": _JUNK,
                "positions": st.one_of(_JUNK, st.lists(_JUNK, max_size=2)),
                "stop_reason": _JUNK,
            },
        ),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_an_engine_says_of_one_request_harms_no_other(junk: list[dict[str, Any]]) -> None:
    """Any garbage in any field: no crash, one last word each, and the neighbour's answer is exact (row 3)."""

    async def play() -> None:
        async with open_audited(engine := ScriptedEngine()) as world:
            hurt, other = await world.ask_settled(), await world.ask_settled()
            for number, fields in enumerate(junk):
                engine.emit(Delta(**{"engine_id": hurt.id, **fields}), Delta(other.id, [number]))
                await world.settle()
            engine.finish(other.id, token_ids=[99])
            if hurt.id in engine.live:
                engine.fail(hurt.id)
            await world.settle()
            assert (await other.answer()).tokens == [*range(len(junk)), 99]
            answer = await hurt.answer()
            assert answer.terminals == 1
            assert all(type(token) is int and 0 <= token < VOCAB_SIZE for token in answer.tokens)
            assert type(hurt.ticket.cached_tokens) is int
            assert 0 <= hurt.ticket.cached_tokens <= hurt.ticket.prompt_tokens
            assert world.crashes == []

    run_seeded(play)


async def test_ten_thousand_aborts_of_all_kinds(open_world: OpenWorld) -> None:
    """Twice, after the end, of strangers, again and again, all in one turn: one abort a request (row 19)."""
    dice = random.Random(1)
    async with open_world(SteppingEngine(STREAMS), max_live=STREAMS) as world:
        ended = [await world.ask_settled(max_tokens=2) for _ in range(8)]
        for visit in ended:
            await visit.answer()
        leaving = [await world.ask_settled(max_tokens=1000) for _ in range(40)]
        staying = [await world.ask_settled(max_tokens=1000) for _ in range(8)]
        for _ in range(10_000):
            match dice.randrange(4):
                case 0:
                    world.graph.cancel_context(f"stranger {dice.randrange(100)}")
                case 1:
                    await dice.choice(ended).leave()
                case 2:
                    world.graph.cancel_context(dice.choice(staying).caller.context_id)
                case _:
                    visit = dice.choice(leaving)
                    await visit.leave()
                    world.graph.reader_gone(visit.ticket)
        await read_all(staying)
        assert [len(visit.reader.tokens) for visit in staying] == [1000] * 8
        assert sorted(world.engine.ids_of("abort")) == [visit.id for visit in leaving]
        assert world.outcomes() == {Outcome.CANCELLED: 40, Outcome.COMPLETED: 16}
        assert world.listener.aborts == {AbortResult.ASKED: 40, AbortResult.CONFIRMED: 40}


async def test_ten_thousand_requests_share_seven_context_ids(open_world: OpenWorld) -> None:
    """Each hears its own tokens only, and a namesake that leaves takes nobody along (row 21)."""
    dice = random.Random(2)
    engine = Telling()
    engine.step_s = 0.001
    async with open_world(engine, max_live=STREAMS) as world:
        for _ in range(10_000 // 50):
            visits = [
                world.ask(caller=FakeCaller(f"context {number % 7}"), max_tokens=3) for number in range(50)
            ]
            leaving = dice.sample(visits, 5)
            await world.settle()
            for visit in leaving:
                await visit.leave()
            for visit in visits:
                answer = await visit.answer()
                is_whole = visit.ticket.outcome is Outcome.COMPLETED
                assert is_whole or visit in leaving
                assert answer.tokens == own_tokens(visit.id, 3 if is_whole else len(answer.tokens))
            await world.settle()
        assert len(world.visits) == 10_000
        assert world.graph.ledger.is_empty


class FailsHalfway(ScriptedEngine):
    """Loads for minutes and finds then that it cannot."""

    async def start(self) -> EngineInfo:
        await super().start()
        await anyio.sleep(600)
        raise EngineStartError("the memory is too small for this model.", "Give a smaller one.")


async def test_a_start_that_fails_half_way_is_stopped_once() -> None:
    """Whatever was begun is ended, and its own word comes out."""
    engine = FailsHalfway()
    around = Surroundings(
        engine=engine, telemetry=RecordingTelemetry(), clock=anyio.current_time, on_crash=lambda _: None
    )
    with pytest.raises(EngineStartError, match="memory"):
        async with open_graph(GraphSettings(), around):
            raise AssertionError("the graph is open")
    assert (engine.starts, engine.stops) == (1, 1)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
@pytest.mark.parametrize("jump_s", [0.0, 3600.0, -3600.0])
async def test_a_wall_clock_that_jumps_changes_nothing(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """An hour forth or back in the middle: no time-out fires or sticks, outcomes are the same (row 16)."""
    wall_s = time.time
    async with open_graph(
        GraphSettings(deadline_s=30.0, stall_timeout_s=0.5, hang_timeout_s=5.0, outbox_tokens=8),
        Surroundings(
            engine=SyntheticEngine(SyntheticConfig(step_ms=2.0)),
            telemetry=(listener := RecordingTelemetry()),
            clock=time.monotonic,
            on_crash=lambda _: None,
            new_wakeup=FutureWakeup,
        ),
    ) as graph:
        reads = [Visit(graph, FakeCaller(), wire_request(max_tokens=50)) for _ in range(20)]
        stalls = [Visit(graph, FakeCaller(), wire_request(max_tokens=50)) for _ in range(2)]
        late = Visit(graph, FakeCaller(metadata={"deadline-ms": "200"}), wire_request(max_tokens=2000))
        await reads[0].reader.read()
        monkeypatch.setattr(time, "time", lambda: wall_s() + jump_s)
        await read_all([*reads, late])
        for visit in stalls:
            await visit.ticket.outbox.wait_terminal()
        assert listener.outcomes == {Outcome.COMPLETED: 20, Outcome.STALLED: 2, Outcome.DEADLINE: 1}
