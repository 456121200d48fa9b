"""Readers that stop reading: bounded memory, nobody else slowed, and nothing of theirs is kept.

The kernel and the frontend take some 30,000 small chunks of a client that reads nothing before a worker
notices. So there are two kinds of them here: many that the worker never has to wait for, and a few with
answers so long, a token a chunk, that they fill everything between and then the worker's own outbox.

An engine that can pause is held back there. One that cannot, as TensorRT-LLM, goes on to the end of the
answer: the room for all of it was reserved, and what lies there unread is what the test looks at.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
import uvloop

from tests.doubles.bridge import LoopThread
from tests.doubles.callers import wire_request
from tests.doubles.hostile_engine import Fault, seed_of
from tests.e2e.at_rest import is_at_rest
from tests.faults.figures import percentile
from tests.faults.load import Answer, Kind, Load, body_of
from tests.faults.moments import figures_of
from tests.faults.stalling import DEEP_TOKENS, stall
from tests.faults.striking import exit_of
from tests.service.worker import FacadeWorker, synthetic

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Iterator

    from tests.doubles.bridge import BridgeCall
    from tests.e2e.engines import Served
    from tests.e2e.stacks import Stack
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STALLED, OTHERS = 50, 64
ROUNDS = 2
MB = 1024 * 1024
MOST_MB = 20.0
OUTPUT = 'dynamo_actor_tokens_total{direction="output"}'
UNREAD = 'dynamo_actor_bound_reached_total{bound="unread_answers"}'
OUTBOX = 'dynamo_actor_bound_reached_total{bound="outbox"}'
# Clients that the worker itself has to wait for, and what it takes besides: long answers, a token a chunk.
DEEP = 4
DEEP_OPTIONS = ("--max-seq-len", "200000", "--chunk-tokens", "1")
# What an unread token costs beside an engine that goes on: it is in its own list of the answer, too.
TOKEN_BYTES = 100
PATIENCE_S = 120.0
# Far less than the drain's budget of more than 40 s.
SOON_S = 15.0
# In process.
BOUND, CHOICES, HELD, READING, OTHER_TOKENS = 32, 8, 4, 4, 50


def test_clients_that_stop_reading_harm_nobody(new_stack: StackFactory, figures: Figures) -> None:
    """Row 7: 50 stalled clients beside 64 streams: those are exact, memory is bounded, slots come back."""
    stack = new_stack(max_num_seqs=128)
    worker = stack.workers[0]
    _healthy(stack)
    with _stalled(stack):
        _healthy(stack)
    worker.wait_status(lambda state: state["in_flight"] == 0, 30.0)
    before_mb = worker.status()["rss_bytes"] / MB
    alone: list[Answer] = []
    beside: list[Answer] = []
    most_mb, freed_s = 0.0, 0.0
    for _ in range(ROUNDS):
        alone += _healthy(stack)
        with _stalled(stack):
            beside += _healthy(stack)
            state = worker.status()
            most_mb = max(most_mb, state["rss_bytes"] / MB)
            assert state["in_flight"] == STALLED, "the stalled ones were to be there to the end"
        closed_s = time.monotonic()
        worker.wait_status(lambda state: state["in_flight"] == 0, 30.0)
        freed_s = max(freed_s, time.monotonic() - closed_s)
    assert [str(answer) for answer in alone + beside if not answer.is_complete] == []
    assert most_mb - before_mb <= MOST_MB
    assert worker.wait_status(lambda state: state["live"] == 0)["outcomes"]["cancelled"] == STALLED * (
        ROUNDS + 1
    )
    for what, of_alone, of_beside in (
        ("TTFT", _ttfts_s(alone), _ttfts_s(beside)),
        ("gap", _gaps_s(alone), _gaps_s(beside)),
    ):
        first_s, then_s = percentile(of_alone, 0.99), percentile(of_beside, 0.99)
        value = f"{first_s * 1000:.0f} -> {then_s * 1000:.0f} ms ({then_s / first_s:.2f}x)"
        figures.record(row=7, what=f"others' {what} p99 beside {STALLED} stalled", value=value, goal="2x")
    figures.record(row=7, what="RSS of the worker", value=f"+{most_mb - before_mb:.1f} MB", goal="+20 MB")
    figures.record(row=7, what="slots free after they close", value=f"{freed_s * 1000:.0f} ms", goal="500 ms")


def test_clients_that_stall_the_worker_itself_are_given_up(
    served: Served, new_stack: StackFactory, figures: Figures
) -> None:
    """Row 7: their outboxes fill, they end as stalled, others are exact; nobody waits for them any more."""
    stack = new_stack(*DEEP_OPTIONS, "--stall-timeout", "2", max_num_seqs=64, step_ms=0)
    worker = stack.workers[0]
    _healthy(stack)
    before_mb = worker.wait_status(is_at_rest, 30.0)["rss_bytes"] / MB
    before_tokens = figures_of(worker)[OUTPUT]
    others: list[Answer] = []
    most_mb = 0.0
    with ExitStack() as connections:
        _stall_deep(stack, connections)
        give_up_s = time.monotonic() + PATIENCE_S
        while (state := worker.status())["live"] or state["readers"] or not others:
            assert time.monotonic() < give_up_s, state
            others += _healthy(stack)
            most_mb = max(most_mb, state["rss_bytes"] / MB)
        told = figures_of(worker)
        drained = worker.control("drain")
        began_s = time.monotonic()
        worker.send(signal.SIGTERM)
        code, ended_s = exit_of(worker, SOON_S)
    assert not served.can_pause or told[OUTBOX] >= DEEP
    # An engine that goes on may have said all before its reader counts as stalled: it is given up as well.
    said_all = 0 if served.can_pause else told[UNREAD]
    assert state["outcomes"]["stalled"] + said_all == DEEP, state
    assert drained["safe_to_delete"]
    assert code == 0
    assert [str(answer) for answer in others if not answer.is_complete] == []
    room_mb = MOST_MB if served.can_pause else DEEP * DEEP_TOKENS * TOKEN_BYTES / MB
    assert most_mb - before_mb <= room_mb
    tokens = told[OUTPUT] - before_tokens - sum(answer.max_tokens for answer in others)
    for what, value, goal in (
        ("stalled at the worker", f"{DEEP} of {DEEP}", "all"),
        ("taken for each by what lies between", f"{tokens / DEEP:,.0f} tokens", ""),
        ("others beside them exact", f"{len(others)} of {len(others)}", "all"),
        ("RSS of the worker beside them", f"+{most_mb - before_mb:.1f} MB", f"+{room_mb:.0f} MB"),
        ("SIGTERM to exit 0 while they stay (0.5 s grace)", f"{ended_s - began_s:.2f} s", "1 s"),
    ):
        figures.record(row=7, what=what, value=value, goal=goal)


def test_a_dead_engine_does_not_wait_for_a_stalled_client(
    served: Served, new_stack: StackFactory, figures: Figures
) -> None:
    """A reader that is in the middle of its time is left behind: code 70 soon, and the log says for whom."""
    stack = new_stack(*DEEP_OPTIONS, "--stall-timeout", "1000", max_num_seqs=64, step_ms=0)
    worker = stack.workers[0]
    with ExitStack() as connections:
        _stall_deep(stack, connections)
        _wait_held(stack, DEEP if served.can_pause else 0)
        with Load(stack.http_port, stack.model()) as load:
            began_s = time.monotonic()
            load.start(Kind.TWO_CHOICES, max_tokens=100, seed=seed_of(Fault.DIES))
            code, ended_s = exit_of(worker, SOON_S)
    assert code == 70
    assert "waiting for 4 readers" in worker.log()
    value = f"{ended_s - began_s:.2f} s"
    figures.record(
        row=7, what="engine dead, to exit 70 (0.5 s grace, 1.5 s for readers)", value=value, goal="3 s"
    )


@pytest.fixture(params=[True, False], ids=["can pause", "cannot pause"])
def worker(request: pytest.FixtureRequest) -> Iterator[FacadeWorker]:
    """A token every 5 ms; a reader has 0.5 s, and an answer takes longer."""
    engine = synthetic(5.0)
    engine.capabilities = msgspec.structs.replace(engine.capabilities, can_pause=request.param)
    with LoopThread(uvloop.new_event_loop) as loop:
        opened = FacadeWorker(loop, engine, outbox_tokens=BOUND, stall_timeout_s=0.5).open()
        yield opened
        opened.end()
        opened.check_closed()
    assert loop.complaints == []


@pytest.mark.parametrize("n", [1, CHOICES])
def test_readers_that_never_come_back_end_as_stalled(worker: FacadeWorker, figures: Figures, n: int) -> None:
    """Others are served meanwhile; what lies unread is never more than was reserved; their end is named."""
    calls = [worker.ask(wire_request(max_tokens=200, n=n)) for _ in range(HELD)]
    worker.until(lambda: worker.graph.ledger.admitted == HELD)
    tickets = worker.loop.call(lambda: list(worker.graph.ledger.live()))
    peak = _Peak(worker)
    for call in calls:
        call.step()
    for _ in range(READING):
        other = _read_watched(worker.ask(wire_request(max_tokens=OTHER_TOKENS)), peak)
        assert other.finish_reasons == ["length"]
        assert len(other.tokens) == OTHER_TOKENS
    worker.until(lambda: peak.look() and worker.outcomes["stalled"] == HELD)
    assert worker.outcomes == {"completed": READING, "stalled": HELD}
    assert peak.excess == 0
    for call in calls:
        call.read_to_end()
        assert call.terminals == 1
        assert "nothing was read" in str(call.error)
    worker.settle_engine()
    assert all(ticket.outbox.waiting_tokens == 0 for ticket in tickets)
    assert worker.graph.ledger.reserved_tokens == 0
    what = f"engine that {'can' if worker.engine.capabilities.can_pause else 'cannot'} pause, n = {n}"
    value = f"{peak.waiting} of {peak.reserved}"
    figures.record(row=7, what=f"{what}: unread tokens of those reserved", value=value, goal="within")


class _Peak:
    """The most tokens that lay unread, and whether they were ever more than was set aside for them."""

    def __init__(self, worker: FacadeWorker) -> None:
        self._worker = worker
        self.waiting = self.reserved = self.excess = 0

    def look(self) -> bool:
        """Event loop."""
        for ticket in self._worker.graph.ledger.live():
            if ticket.is_admitted:
                self.excess = max(self.excess, ticket.outbox.waiting_tokens - ticket.reserved_tokens)
        waiting = sum(ticket.outbox.waiting_tokens for ticket in self._worker.graph.ledger.live())
        if waiting >= self.waiting:
            self.waiting, self.reserved = waiting, self._worker.graph.ledger.reserved_tokens
        return True


def _read_watched(call: BridgeCall, peak: _Peak) -> BridgeCall:
    while call.step() is not None:
        peak._worker.loop.call(peak.look)
    return call


def _healthy(stack: Stack) -> list[Answer]:
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, OTHERS, max_tokens=120)
        return load.finish(120.0)


@contextmanager
def _stalled(stack: Stack) -> Generator[None]:
    """Clients with small windows who read the first bytes and nothing more; they leave at the end."""
    with ExitStack() as connections:
        for _ in range(STALLED):
            connections.enter_context(_stall(stack, 1900))
        stack.workers[0].wait_status(lambda state: state["in_flight"] == STALLED, 30.0)
        yield


def _stall_deep(stack: Stack, connections: ExitStack) -> None:
    for _ in range(DEEP):
        connections.enter_context(_stall(stack, DEEP_TOKENS))


def _wait_held(stack: Stack, count: int) -> None:
    """Until so many outboxes were full and no more tokens come: nothing takes any more, or all is said."""
    give_up_s = time.monotonic() + PATIENCE_S
    before, told = -1.0, figures_of(stack.workers[0])
    while told[OUTBOX] < count or told[OUTPUT] != before:
        assert time.monotonic() < give_up_s, told[OUTPUT]
        before = told[OUTPUT]
        time.sleep(1.0)
        told = figures_of(stack.workers[0])


def _stall(stack: Stack, max_tokens: int) -> socket.socket:
    answer = Answer(Kind.PLAIN, max_tokens=max_tokens, seed=None)
    return stall(stack.http_port, body_of(answer, stack.model()))


def _ttfts_s(answers: list[Answer]) -> list[float]:
    return [answer.text_s[0] - answer.asked_s for answer in answers]


def _gaps_s(answers: list[Answer]) -> list[float]:
    return [gap_s for answer in answers for gap_s in answer.gaps_s]
