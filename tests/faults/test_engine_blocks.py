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

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LEAVING = 16


def test_a_blocked_engine_thread_blocks_nothing_else(new_stack: StackFactory, figures: Figures) -> None:
    """Row 5: health, metrics, refusals and cancels work meanwhile; afterwards all answers are exact."""
    stack = new_stack(hostile=({"in_process": False},))
    worker = stack.workers[0]
    refused_before = worker.status()["outcomes"].get("refused", 0)
    with Load(stack.http_port, stack.model()) as load:
        others = load.start(Kind.PLAIN, OTHERS, max_tokens=300)
        leaving = load.start(Kind.PLAIN, LEAVING, max_tokens=300)
        load.wait_tokens(10)
        blocked_s = strike(load, worker, Fault.BLOCKS)
        cancels_s = [_cancel(load, worker, answer) for answer in leaving]
        probes_s = {
            "/health": _longest(lambda: worker.system.get("/health")[0] == 200),
            "/metrics": _longest(lambda: worker.system.get("/metrics")[0] == 200),
            "a refusal": _longest(lambda: _is_refused(stack)),
        }
        probed_s = time.monotonic()
        load.finish()
    assert probed_s < blocked_s + BLOCK_S, "the block ended before everything was tried"
    assert worker.status()["outcomes"]["refused"] > refused_before
    assert worker.status()["outcomes"]["cancelled"] == LEAVING
    assert incomplete(others) == []
    figures.record(
        row=5,
        what=f"client leaves to its books closed, {LEAVING} during the block, p99",
        value=f"{percentile(cancels_s, 0.99) * 1000:.0f} ms",
        goal="50 ms",
    )
    for what, longest_s in probes_s.items():
        value = f"{longest_s * 1000:.0f} ms"
        figures.record(row=5, what=f"{what} during the block, slowest", value=value, goal="live")
    figures.record(row=5, what="others lost", value=f"{len(incomplete(others))} of {OTHERS}", goal="0")


def _cancel(load: Load, worker: Worker, answer: Answer) -> float:
    """Hang up one request; seconds until the worker counts it as cancelled."""
    before = worker.status()["outcomes"].get("cancelled", 0)
    left_s = time.monotonic()
    load.hang_up([answer])
    worker.wait_status(lambda state: state["outcomes"].get("cancelled", 0) > before)
    return time.monotonic() - left_s


def _longest(try_it: Callable[[], bool], times: int = 10) -> float:
    """Seconds of the slowest of some tries, all of which must work."""
    longest_s = 0.0
    for _ in range(times):
        began_s = time.monotonic()
        assert try_it()
        longest_s = max(longest_s, time.monotonic() - began_s)
    return longest_s


def _is_refused(stack: Stack) -> bool:
    """A request that only the worker can refuse: this engine knows no grammars."""
    status, _ = stack.chat("w5", guided_grammar="root ::= 'w5'")
    return status >= 400
