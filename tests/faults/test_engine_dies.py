"""An engine that dies, by itself or by the system, under load or idle: one death path, code 70."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.doubles.hostile_engine import Fault
from tests.e2e.waiting import wait_until
from tests.faults.load import Kind, Load
from tests.faults.striking import (
    SOUND,
    check_survived,
    die,
    exit_of,
    instances,
    kill_engine,
    strike,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.engines import Served
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]

IN_CHILD = {"in_process": False}
# How the log says that it was not the engine's own idea.
PROCESS_ENDED = {
    "synthetic": "process ended with code -9",
    "trtllm": "processes of it that have ended by themselves: 1",
}


def test_an_engine_process_that_is_killed_takes_no_request_with_it(
    served: Served, new_stack: StackFactory, figures: Figures
) -> None:
    """Row 6, running: its requests go on at the second worker, exact; those that cannot move are told."""
    stack = new_stack(hostile=(IN_CHILD, SOUND))
    hit, _ = stack.workers
    death = die(stack, lambda _: kill_engine(hit))
    causes = [line for line in hit.log().splitlines() if "worker.failed" in line]
    assert len(causes) == 1
    assert PROCESS_ENDED[served.name] in hit.log()
    killed_s = death.ended_s - death.seconds
    moved = [answer for answer in death.answers if answer.kind is Kind.PLAIN]
    told = [answer.ended_s or death.ended_s for answer in death.answers if answer.is_error]
    told_s = max(told, default=killed_s) - killed_s
    survived = death.survived
    figures.record(row=6, what="running: plain and unary lost", value=survived.lost, goal="0")
    figures.record(row=6, what="running: n=2 and guided told of it", value=survived.told, goal="counted")
    figures.record(
        row=6, what="running: from the kill to the last error", value=f"{told_s:.2f} s", goal="1 s"
    )
    figures.record(
        row=6,
        what="running: longest pause of a moved answer",
        value=f"{max(max(answer.gaps_s) for answer in moved):.2f} s",
        goal="recorded",
    )
    figures.record(row=6, what="running: exit 70 after", value=f"{death.seconds:.1f} s", goal="its budget")


def test_an_idle_worker_whose_engine_is_killed_goes_at_once(
    new_stack: StackFactory, figures: Figures, tmp_path: Path
) -> None:
    """Row 6, idle: out of discovery, exit 70; requests that come meanwhile go to the second worker."""
    stack = new_stack(hostile=(IN_CHILD, SOUND))
    hit, _ = stack.workers
    discovery = tmp_path / "stack" / "discovery"
    before = instances(discovery)
    with Load(stack.http_port, stack.model()) as load:
        killed_s = kill_engine(hit)
        gone_s = wait_until(
            lambda: instances(discovery) < before, "the worker stays in discovery", 10, every_s=0.005
        )
        late = load.start(Kind.PLAIN, 32, max_tokens=20)
        code, ended_s = exit_of(hit, 30)
        load.start(Kind.PLAIN, 32, max_tokens=20)
        answers = load.finish()
    assert code == 70
    survived = check_survived(answers)
    assert len(late) == 32
    assert len(stack.client.models()) == 1
    figures.record(
        row=6, what="idle: out of discovery after", value=f"{gone_s - killed_s:.2f} s", goal="at once"
    )
    figures.record(row=6, what="idle: exit 70 after", value=f"{ended_s - killed_s:.1f} s", goal="its budget")
    figures.record(row=6, what="idle: failed requests meanwhile and after", value=survived.lost, goal="0")


@pytest.mark.parametrize("fault", [Fault.DIES, Fault.RAISES])
def test_an_engine_that_gives_up_ends_its_worker(
    new_stack: StackFactory, figures: Figures, fault: Fault
) -> None:
    """Field reports: a dead engine must not leave a worker behind that looks alive and serves errors."""
    stack = new_stack(hostile=({}, SOUND))
    hit, _ = stack.workers
    death = die(stack, lambda load: strike(load, hit, fault), max_tokens=200)
    assert "worker.failed" in hit.log()
    what = f"engine {fault.value}: exit 70 after"
    figures.record(row="6", what=what, value=f"{death.seconds:.1f} s", goal="its budget")


def test_an_engine_that_is_killed_during_the_drain_takes_no_request_with_it(
    new_stack: StackFactory, figures: Figures
) -> None:
    """SIGTERM, then the engine dies while requests finish: they go on at the second worker; code 70."""
    stack = new_stack(hostile=(IN_CHILD, SOUND))
    hit, _ = stack.workers

    def drain_and_kill(_: Load) -> float:
        hit.send(signal.SIGTERM)
        hit.wait_status(lambda state: state["state"] == "draining")
        return kill_engine(hit)

    survived = die(stack, drain_and_kill).survived
    figures.record(row=6, what="killed during a drain: plain and unary lost", value=survived.lost, goal="0")
    figures.record(
        row=6, what="killed during a drain: n=2 and guided told", value=survived.told, goal="counted"
    )


def test_an_engine_that_is_killed_after_a_drain_by_hand_ends_its_worker(new_stack: StackFactory) -> None:
    """Drained, out of discovery, idle: it still goes with code 70."""
    stack = new_stack(hostile=(IN_CHILD, SOUND))
    hit, _ = stack.workers
    assert hit.control("drain")["state"] == "drained"
    kill_engine(hit)
    assert exit_of(hit, 30)[0] == 70
