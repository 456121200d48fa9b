"""More requests than places: the rest is refused at once, nothing queued, and who was taken is served."""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING

import psutil
import pytest
import uvloop

from tests.doubles.bridge import LoopThread
from tests.faults.figures import percentile
from tests.faults.flood import Flood, Tally
from tests.faults.load import Answer, Kind, Load
from tests.fuzz.workers import SpanWatch, fuzzed_worker, watched_log
from tests.service.worker import synthetic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures
    from tests.service.worker import FacadeWorker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SLOTS, PLACES = 32, 64
STEP_MS, TOKENS = 20.0, 50
# What the engine can do: a slot is free again after each answer.
SERVED_PER_S = SLOTS / (TOKENS * STEP_MS / 1000)
ROUNDS, ROUND_S = 3, 5.0
MB = 1024 * 1024


@pytest.fixture
def worker() -> Iterator[FacadeWorker]:
    """A facade with everything behind it; 32 run, 32 wait, nobody else is taken."""
    with watched_log(), LoopThread(uvloop.new_event_loop) as loop:
        engine = synthetic(STEP_MS, SLOTS)
        opened = fuzzed_worker(loop, engine, SpanWatch(), max_live=PLACES)
        yield opened
        opened.end()
        opened.check_closed()


@pytest.mark.parametrize("times", [2, 10])
def test_overload_in_process_is_refused_at_once(worker: FacadeWorker, figures: Figures, times: int) -> None:
    """Row 13: each refusal is a 429 with a hint; no place is taken twice; those inside lose nothing."""
    steady = Flood(worker, TOKENS, PLACES)
    flooded = Flood(worker, TOKENS, PLACES, extra_per_s=(times - 1) * SERVED_PER_S)
    steady.run(ROUND_S)
    flooded.run(ROUND_S)
    before_mb = _rss_mb()
    calm: list[Tally] = []
    loaded: list[Tally] = []
    for _ in range(ROUNDS):
        calm.append(steady.run(ROUND_S))
        loaded.append(flooded.run(ROUND_S))
    grown_mb = _rss_mb() - before_mb
    tallies = [*calm, *loaded]
    assert [tally.others for tally in tallies if tally.others] == []
    assert all(tally.refusals_s for tally in loaded)
    assert max(tally.most_admitted for tally in tallies) <= PLACES
    worker.settle_engine()
    ledger = worker.graph.ledger
    assert (ledger.live_count, ledger.admitted, ledger.reserved_tokens) == (0, 0, 0)
    refusals_s = [each_s for tally in loaded for each_s in tally.refusals_s]
    goodput = _median_tokens(loaded) / _median_tokens(calm)
    name = f"{times}x the admission, in process"
    told = (
        f"{_ms(refusals_s, 0.5)} / {_ms(refusals_s, 0.99)} / {_ms(refusals_s, 1.0)} ms of {len(refusals_s):,}"
    )
    figures.record(row=13, what=f"{name}: call to refusal, p50 / p99 / max", value=told, goal="10 ms")
    figures.record(
        row=13, what=f"{name}: goodput of the un-overloaded", value=f"{goodput:.3f}x", goal="0.95x"
    )
    figures.record(
        row=13, what=f"{name}: RSS growth of the test's process", value=f"{grown_mb:.1f} MB", goal="flat"
    )


def test_overload_over_http_refuses_and_serves(new_stack: StackFactory, figures: Figures) -> None:
    """Row 13, S15: of ten times the places, those that are taken are exact, others get 429 and a hint."""
    places = 16
    stack = new_stack("--max-live", str(places), max_num_seqs=8)
    worker = stack.workers[0]
    before = worker.status()["outcomes"]
    with Load(stack.http_port, stack.model()) as load:
        answers = load.start(Kind.UNARY, 10 * places, max_tokens=60)
        most_taken = 0
        while any(answer.ended_s is None for answer in answers):
            status = worker.status()
            most_taken = max(most_taken, status["in_flight"] + status["waiting"])
            assert worker.is_healthy()
        load.finish()
    assert most_taken <= places
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 429]
    assert len(served) + len(refused) == len(answers), [str(answer) for answer in answers]
    assert [str(answer) for answer in served if not answer.is_complete] == []
    assert all("retry after" in (answer.error or "") for answer in refused)
    assert len(served) >= places
    state = worker.wait_status(lambda status: status["live"] == 0 and status["in_flight"] == 0)
    assert state["outcomes"]["refused"] - before["refused"] == len(refused)
    assert state["outcomes"]["completed"] - before["completed"] == len(served)
    times_s = [_took_s(answer) for answer in refused]
    told = (
        f"{percentile(times_s, 0.5) * 1000:.0f} / {percentile(times_s, 0.99) * 1000:.0f} ms of {len(refused)}"
    )
    figures.record(row=13, what="10x, over HTTP: request to 429, p50 / p99", value=told, goal="-")


def _took_s(answer: Answer) -> float:
    return (answer.ended_s or time.monotonic()) - answer.asked_s


def _ms(times_s: list[float], share: float) -> str:
    return f"{percentile(times_s, share) * 1000:.2f}"


def _median_tokens(tallies: list[Tally]) -> float:
    return statistics.median(tally.tokens for tally in tallies)


def _rss_mb() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / MB
