"""Row 8: clients that leave, at every place where their request may be, one at a time and in crowds."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e.waiting import wait_log
from tests.faults.load import Kind, Load
from tests.faults.moments import Gate, figures_of, moment_stack
from tests.faults.striking import incomplete

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.engines import Served
    from tests.e2e.stacks import Worker
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]

CROWD = 200


def check_books(worker: Worker, **outcomes: int) -> None:
    """Nobody is live, nothing in the engine, every abort confirmed, every request has its one outcome."""
    state = worker.wait_status(lambda status: status["live"] == 0 and status["in_flight"] == 0)
    assert state["started"] == sum(state["outcomes"].values())
    assert {name: state["outcomes"][name] for name in outcomes} == outcomes
    page = figures_of(worker)
    asked, confirmed, timed_out = (
        page.get(f'dynamo_actor_aborts_total{{result="{result}"}}', 0.0)
        for result in ("asked", "confirmed", "timed_out")
    )
    assert asked == confirmed
    assert timed_out == 0
    assert page["dynamo_actor_requests_live"] == 0
    assert page["dynamo_actor_requests_in_flight"] == 0


def asked_aborts(worker: Worker) -> float:
    """What the engine was told so far."""
    return figures_of(worker)['dynamo_actor_aborts_total{result="asked"}']


def test_clients_that_leave_while_they_are_answered_free_their_slots(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Streaming: 16 of 64 leave; the engine hears of each once, the others do not notice."""
    stack = new_stack("--max-num-seqs", "128")
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        staying = load.start(Kind.PLAIN, 48, max_tokens=200)
        leaving = load.start(Kind.PLAIN, 12, max_tokens=1500)
        leaving += load.start(Kind.TWO_CHOICES, 4, max_tokens=1500)
        load.wait_tokens(10)
        before = asked_aborts(worker)
        left_s = time.monotonic()
        load.hang_up(leaving)
        worker.wait_status(lambda state: state["in_flight"] == 48)
        free_s = time.monotonic() - left_s
        load.finish()
    assert incomplete(staying) == []
    assert asked_aborts(worker) - before == 16
    check_books(worker, cancelled=16)
    figures.record(
        row=8,
        what="16 of 64 leave at once: others lost; from the first close to all slots free",
        value=f"{len(incomplete(staying))} of 48; {free_s * 1000:.0f} ms",
        goal="0; 50 ms and the polling of this test",
    )


def test_a_client_that_leaves_during_the_prefill_frees_its_slot(new_stack: StackFactory) -> None:
    """No token has come yet: told to the engine, cancelled, once."""
    stack = new_stack(step_ms=1500)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        staying = load.start(Kind.PLAIN, 1, max_tokens=3)
        leaving = load.start(Kind.PLAIN, 1, max_tokens=100)
        worker.wait_status(lambda state: state["in_flight"] == 2)
        load.hang_up(leaving)
        worker.wait_status(lambda state: state["live"] == 1)
        load.finish()
    assert incomplete(staying) == []
    check_books(worker, cancelled=1)


def test_a_client_that_leaves_in_the_waiting_room_never_reaches_the_engine(new_stack: StackFactory) -> None:
    """One slot, taken: the second one goes without the engine hearing of it."""
    stack = new_stack("--max-num-seqs", "1", "--engine-queue", "0")
    worker = stack.workers[0]
    before = asked_aborts(worker)
    with Load(stack.http_port, stack.model()) as load:
        staying = load.start(Kind.PLAIN, 1, max_tokens=150)
        load.wait_tokens(1)
        leaving = load.start(Kind.PLAIN, 1, max_tokens=100)
        worker.wait_status(lambda state: state["waiting"] == 1)
        load.hang_up(leaving)
        worker.wait_status(lambda state: state["waiting"] == 0)
        load.finish()
    assert incomplete(staying) == []
    assert asked_aborts(worker) == before
    check_books(worker, cancelled=1)


@contextmanager
def held_at(served: Served, moment: str, folder: Path, model: Path) -> Iterator[tuple[Worker, Load, Gate]]:
    """A worker whose next request stops at this moment until the gate opens."""
    gate = Gate.in_folder(folder)
    with (
        moment_stack(served, folder, model, moment, gate) as stack,
        Load(stack.http_port, stack.model()) as load,
    ):
        yield stack.workers[0], load, gate


def test_a_client_that_leaves_while_its_grammar_is_compiled_never_reaches_the_engine(
    served: Served, word_model: Path, tmp_path: Path
) -> None:
    """Parked in the resolver; others overtake it, before and after."""
    with held_at(served, "grammar", tmp_path, word_model) as (worker, load, gate):
        leaving = load.start(Kind.GUIDED, 1, max_tokens=20)
        wait_log(worker, "at grammar")
        load.hang_up(leaving)
        worker.wait_status(lambda state: state["live"] == 0)
        assert worker.status()["outcomes"]["cancelled"] == 1
        plain = load.start(Kind.PLAIN, 1, max_tokens=20)
        load.wait_ended(plain)
        gate.open()
        guided = load.start(Kind.GUIDED, 1, max_tokens=20)
        load.finish()
        assert incomplete([*plain, *guided]) == []
        assert asked_aborts(worker) == 0
        check_books(worker, cancelled=1, completed=2)


def test_a_client_that_leaves_at_the_last_token_changes_nothing(
    served: Served, word_model: Path, tmp_path: Path
) -> None:
    """The engine has ended the request already: completed it is, and the engine hears nothing."""
    with held_at(served, "last_token", tmp_path, word_model) as (worker, load, gate):
        leaving = load.start(Kind.PLAIN, 1, max_tokens=7)
        wait_log(worker, "at last_token")
        load.hang_up(leaving)
        gate.open()
        after = load.start(Kind.PLAIN, 1, max_tokens=7)
        load.finish()
        assert incomplete(after) == []
        assert asked_aborts(worker) == 0
        check_books(worker, cancelled=0, completed=2)


def test_a_client_that_leaves_before_it_is_admitted_leaves_nothing_behind(new_stack: StackFactory) -> None:
    """Fifty requests whose clients close as soon as they are sent: whichever arrived has an outcome."""
    stack = new_stack()
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        leaving = load.start(Kind.PLAIN, 50, max_tokens=1500)
        load.hang_up(leaving)
        staying = load.start(Kind.PLAIN, 8, max_tokens=30)
        load.finish()
    assert incomplete(staying) == []
    check_books(worker)


def test_after_storms_of_clients_that_come_and_go_the_books_balance(
    new_stack: StackFactory, figures: Figures
) -> None:
    """200 at once, more than the slots, leave before, at and after their first tokens; three times."""
    stack = new_stack("--max-num-seqs", "64")
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        staying = load.start(Kind.PLAIN, 8, max_tokens=600)
        load.wait_tokens(1, staying)
        for tokens in (0, 1, 5):
            crowd = load.start(Kind.PLAIN, CROWD, max_tokens=1500)
            load.wait_tokens(tokens, crowd[:8])
            load.hang_up(crowd)
        late = load.start(Kind.PLAIN, 32, max_tokens=20)
        load.finish()
    assert incomplete([*staying, *late]) == []
    check_books(worker)
    # A generator whose client has left is dropped by the framework when it gets to it.
    worker.wait_status(lambda state: state["readers"] == 0, timeout_s=30)
    outcomes = worker.status()["outcomes"]
    figures.record(
        row=8,
        what=f"three storms of {CROWD} clients that leave: cancelled; live, unconfirmed, others lost",
        value=f"{outcomes['cancelled']}; 0, 0, {len(incomplete(staying))} of 8",
        goal="0, 0, 0",
    )


def test_disconnects_just_before_a_signal_do_not_hold_the_worker(
    new_stack: StackFactory, figures: Figures
) -> None:
    """20 of 64 leave 50 ms before SIGTERM: 44 complete and exact, exit 0."""
    stack = new_stack()
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        staying = load.start(Kind.PLAIN, 44, max_tokens=120)
        leaving = load.start(Kind.PLAIN, 20, max_tokens=1500)
        load.wait_tokens(10)
        load.hang_up(leaving)
        # The 50 ms are the fault: the aborts are on their way.
        time.sleep(0.05)
        worker.send(signal.SIGTERM)
        load.finish()
        code = worker.child.wait(30)
    assert incomplete(staying) == []
    assert code == 0
    figures.record(
        row="8, 9",
        what="20 of 64 leave 50 ms before SIGTERM: complete; exit",
        value=f"{44 - len(incomplete(staying))} of 44; {code}",
        goal="44; 0",
    )
