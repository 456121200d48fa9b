"""An engine whose thread does nothing for 3 s: everything around it stays live, and no token is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.doubles.hostile_engine import BLOCK_S, Fault
from tests.faults.figures import percentile
from tests.faults.load import Kind, Load
from tests.faults.striking import OTHERS, incomplete, strike

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.stacks import Stack, Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures
    from tests.faults.load import Answer

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]

LEAVING = 16
CANCEL = "client leaves to its books closed"


def test_a_blocked_engine_thread_blocks_nothing_else(new_stack: StackFactory, figures: Figures) -> None:
    """Row 5: health, metrics, refusals and cancels work meanwhile; afterwards all answers are exact."""
    stack = new_stack(hostile=({"in_process": False},))
    worker = stack.workers[0]
    refused_before = worker.status()["outcomes"].get("refused", 0)
    tried: dict[str, list[float]] = {}
    with Load(stack.http_port, stack.model()) as load:
        others = load.start(Kind.PLAIN, OTHERS, max_tokens=300)
        leaving = load.start(Kind.PLAIN, LEAVING, max_tokens=300)
        load.wait_tokens(10)
        until_s = strike(load, worker, Fault.BLOCKS) + BLOCK_S
        rounds = 0
        # As many rounds as fit: what began and ended during the block counts.
        for answer in leaving:
            attempts = _one_of_each(load, stack, answer)
            rounds += 1
            if time.monotonic() > until_s:
                break
            for what, seconds in attempts.items():
                tried.setdefault(what, []).append(seconds)
        load.finish()
    assert tried, "the block ended before anything had been tried"
    assert worker.status()["outcomes"]["refused"] == refused_before + rounds
    assert worker.status()["outcomes"]["cancelled"] == rounds
    assert incomplete(others) == []
    for what, times_s in tried.items():
        value = f"{percentile(times_s, 0.99) * 1000:.0f} ms"
        goal = "50 ms" if what == CANCEL else "live"
        figures.record(row=5, what=f"{what}, {len(times_s)} during the block, p99", value=value, goal=goal)
    figures.record(row=5, what="others lost", value=f"{len(incomplete(others))} of {OTHERS}", goal="0")


def _one_of_each(load: Load, stack: Stack, answer: Answer) -> dict[str, float]:
    """Seconds of each thing that must work while the engine does not; this client leaves."""
    worker = stack.workers[0]
    return {
        CANCEL: _timed(lambda: _cancel(load, worker, answer)),
        "/health": _timed(lambda: worker.system.get("/health")[0] == 200),
        "/metrics": _timed(lambda: worker.system.get("/metrics")[0] == 200),
        "a refusal": _timed(lambda: _is_refused(stack)),
    }


def _timed(work: Callable[[], bool]) -> float:
    """Seconds that something took, which must work."""
    began_s = time.monotonic()
    assert work()
    return time.monotonic() - began_s


def _cancel(load: Load, worker: Worker, answer: Answer) -> bool:
    """Hang up one request, and wait until the worker counts it as cancelled."""
    before = worker.status()["outcomes"].get("cancelled", 0)
    load.hang_up([answer])
    worker.wait_status(lambda state: state["outcomes"].get("cancelled", 0) > before)
    return True


def _is_refused(stack: Stack) -> bool:
    """A request that only the worker can refuse: this engine knows no grammars."""
    status, _ = stack.chat("w5", guided_grammar="root ::= 'w5'")
    return status >= 400
