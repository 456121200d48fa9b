"""A signal with requests in hand: all that can finish finishes, exactly; of the rest every client is told."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.e2e.request_lines import TRACED
from tests.e2e.stacks import Reader
from tests.e2e.waiting import wait_log, wait_until
from tests.e2e.word_model import word_of
from tests.faults.books import handed_on, misbooked
from tests.faults.load import Answer, Kind, Load
from tests.faults.moments import (
    BOTH,
    Gate,
    figures_of,
    moment_stack,
    wait_handled,
)
from tests.faults.striking import exit_of, incomplete

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.engines import Served
    from tests.e2e.stacks import Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]

GRACE_S = 0.5
# After a drain of 2 s: 5 s to stop the engine and 2 s to spare are the least the options accept.
SHORT = {"DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": "9"}
HARD_EXIT_S = GRACE_S + 9
FOREVER = 1900
# Milliseconds a step, tokens of an answer, and how many of them have been seen at the signal.
PACES = {"prefill": (1500, 3, 0), "mid-stream": (20, 100, 20)}


def silent(answers: list[Answer]) -> list[str]:
    """Those that ended with neither a reason nor an error, or did not end, or are not exact."""
    return [str(answer) for answer in answers if answer.is_silent or answer.is_hung or not answer.is_exact]


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of a load and its worker. Seconds to the exit, from the signal and from the last answer."""

    answers: list[Answer]
    since_signal_s: float
    since_last_s: float


def stop(worker: Worker, load: Load, number: signal.Signals = signal.SIGTERM) -> Stopped:
    """A signal, all answers, and the exit, with code 0."""
    worker.send(number)
    asked_s = time.monotonic()
    answers = load.finish(150)
    code, exit_s = exit_of(worker)
    assert code == 0
    last_s = max(answer.ended_s or exit_s for answer in answers)
    return Stopped(answers, exit_s - asked_s, exit_s - last_s)


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("moment", PACES)
def test_a_signal_loses_none_of_32(
    new_stack: StackFactory,
    figures: Figures,
    number: signal.Signals,
    moment: str,
) -> None:
    """Row 9: every request complete and exact, exit 0, soon after the last."""
    step_ms, tokens, seen = PACES[moment]
    stack = new_stack(step_ms=step_ms)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, 24, max_tokens=tokens)
        load.start(Kind.GUIDED, 4, max_tokens=tokens)
        load.start(Kind.TWO_CHOICES, 4, max_tokens=tokens)
        worker.wait_status(lambda state: state["live"] == 32)
        load.wait_tokens(seen)
        stopped = stop(worker, load, number)
    lost = incomplete(stopped.answers)
    assert lost == []
    figures.record(
        row=9,
        what=f"{number.name} at {moment}, 32 in flight: lost; exit after the last",
        value=f"{len(lost)} of 32; {stopped.since_last_s:.2f} s",
        goal="0; 0.5 s",
    )


def test_a_signal_loses_none_of_256(new_stack: StackFactory, figures: Figures) -> None:
    """Row 9, a full worker."""
    stack = new_stack("--max-num-seqs", "256", "--drain-timeout", "100")
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        for _ in range(8):
            load.wait_tokens(1, load.start(Kind.PLAIN, 32, max_tokens=500))
        worker.wait_status(lambda state: state["in_flight"] == 256, timeout_s=60)
        stopped = stop(worker, load)
    lost = incomplete(stopped.answers)
    assert lost == []
    figures.record(
        row=9,
        what="SIGTERM, 256 in flight: lost; exit after the last",
        value=f"{len(lost)} of 256; {stopped.since_last_s:.2f} s",
        goal="0; 0.5 s",
    )


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_at_the_last_token_loses_nothing(
    served: Served, word_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The engine has ended the request, its last chunk is on its way to the framework."""
    gate = Gate.in_folder(tmp_path)
    with moment_stack(served, tmp_path, word_model, "last_token", gate) as stack:
        worker = stack.workers[0]
        reader = Reader(stack.client, stack.model(), "w5", {"max_tokens": 7}).start()
        wait_log(worker, "at last_token")
        worker.send(number)
        wait_handled(worker.child.pid)
        worker.wait_status(lambda state: state["state"] != "serving")
        gate.open()
        assert reader.finish().reason == "length"
        assert reader.text.split() == [word_of(token_id) for token_id in range(1000, 1007)]
        assert worker.child.wait(20) == 0


def test_requests_that_outlive_the_budget_are_told_before_the_hard_exit(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Row 10: nobody to take them over; each client gets an error in time, the worker exit 0."""
    stack = new_stack("--drain-timeout", "2", environ=SHORT)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.PLAIN, 24, max_tokens=FOREVER)
        load.start(Kind.GUIDED, 4, max_tokens=FOREVER)
        load.start(Kind.TWO_CHOICES, 4, max_tokens=FOREVER)
        load.wait_tokens(5)
        stopped = stop(worker, load)
    assert silent(stopped.answers) == []
    told = sum(answer.is_error for answer in stopped.answers)
    assert told == 32
    figures.record(
        row=10,
        what="SIGTERM, 32 requests longer than the budget: told; before the hard exit",
        value=f"{told} of 32; {HARD_EXIT_S - stopped.since_signal_s:.1f} s",
        goal="all; 2 s",
    )


def test_an_engine_that_does_not_stop_meets_our_own_limit_before_the_frameworks(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Row 10, the tightest budget that is accepted: told, and out by ourselves with code 0."""
    stack = new_stack("--drain-timeout", "2", environ=SHORT, hostile=[{"stop": "waits"}])
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        load.start(Kind.TWO_CHOICES, 4, max_tokens=FOREVER)
        load.wait_tokens(5)
        stopped = stop(worker, load)
    assert silent(stopped.answers) == []
    figures.record(
        row=10,
        what="engine that does not stop: exit before the hard exit",
        value=f"{HARD_EXIT_S - stopped.since_signal_s:.1f} s",
        goal="2 s",
    )


@pytest.mark.parametrize("stage", ["grace", "drain"])
@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)]
)
def test_a_second_signal_ends_the_wait_and_tells_everybody(
    new_stack: StackFactory, figures: Figures, stage: str, first: signal.Signals, second: signal.Signals
) -> None:
    """Row 11: what can move moves and completes, of the rest every client is told, exit 70."""
    grace_s = "4" if stage == "grace" else "0.2"
    environ = {**TRACED, "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": grace_s}
    stack = new_stack(step_ms=20, environ=environ, hostile=({}, {}))
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model(), numbers=count()) as load:
        load.start(Kind.PLAIN, 16, max_tokens=300)
        load.start(Kind.GUIDED, 8, max_tokens=300)
        load.start(Kind.TWO_CHOICES, 8, max_tokens=300)
        load.wait_tokens(5)
        worker.send(first)
        if stage == "grace":
            worker.wait_status(lambda state: not state["in_discovery"])
            assert worker.status()["state"] == "serving"
        else:
            worker.wait_status(lambda state: state["state"] == "draining")
        worker.send(second)
        code = worker.child.wait(30)
        answers = load.finish()
    assert code == 70
    assert silent(answers) == []
    assert incomplete([answer for answer in answers if answer.kind.is_movable]) == []
    told = sum(answer.is_error for answer in answers)
    assert told > 0
    ended, other = worker.log(), stack.workers[1]
    wait_until(
        lambda: misbooked(answers, ended, [other.log()]) == [],
        lambda: misbooked(answers, ended, [other.log()]),
        10,
    )
    figures.record(
        row=11,
        what=f"{first.name}, then {second.name} in the {stage}: moved, told, silent, of 32",
        value=f"{handed_on(answers, ended)}, {told}, {len(silent(answers))}",
        goal="0 silent",
    )


def test_the_worker_leaves_as_soon_as_the_last_request_is_done(
    new_stack: StackFactory, figures: Figures
) -> None:
    """200 tokens at 10 ms, SIGTERM at token 20, 30 s to drain: all tokens at their pace, gone after 2 s."""
    stack = new_stack("--drain-timeout", "30", step_ms=10)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        (answer,) = load.start(Kind.PLAIN, max_tokens=200)
        load.wait_tokens(20)
        worker.send(signal.SIGTERM)
        asked_s = time.monotonic()
        worker.wait_status(lambda state: not state["in_discovery"])
        load.finish()
        code, exit_s = exit_of(worker)
    assert answer.is_complete, str(answer)
    assert code == 0
    figures.record(
        row="S03",
        what="SIGTERM at token 20 of 200: longest gap; exit after the signal",
        value=f"{max(answer.gaps_s) * 1000:.0f} ms; {exit_s - asked_s:.1f} s",
        goal="10 ms and noise; about 2 s",
    )


def test_what_the_budget_interrupts_is_in_the_log_and_in_the_metric(
    served: Served, word_model: Path, tmp_path: Path, figures: Figures
) -> None:
    """20 s of tokens, 2 s to drain: EngineShutdown, every token once, counted, exit 0 within 5 s more."""
    gate = Gate.in_folder(tmp_path)
    with moment_stack(served, tmp_path, word_model, "cleanup", gate, "--drain-timeout", "2") as stack:
        worker = stack.workers[0]
        with Load(stack.http_port, stack.model()) as load:
            (answer,) = load.start(Kind.PLAIN, max_tokens=FOREVER)
            load.wait_tokens(20)
            worker.send(signal.SIGTERM)
            asked_s = time.monotonic()
            wait_log(worker, "at cleanup")
            counted = figures_of(worker)['dynamo_actor_requests_total{outcome="interrupted"}']
            gate.open()
            code, exit_s = exit_of(worker)
            load.finish()
    assert answer.is_error
    assert answer.is_exact
    assert answer.reasons == []
    assert counted == 1
    assert "1 request interrupted by shutdown" in worker.log()
    assert code == 0
    figures.record(
        row="S04",
        what="a request longer than --drain-timeout 2: exit after the signal",
        value=f"{exit_s - asked_s:.1f} s",
        goal="7 s",
    )
