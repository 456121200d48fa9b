"""Side lanes: jobs in order, nobody waited for longer than a turn, nobody's thread lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from actors.engines.foreign.side_job import Interrupted, Job
from actors.engines.torch import side_lane
from actors.engines.torch.side_lane import SideLane
from protocols.bounds import Bound
from tests.doubles.listeners import RecordingTelemetry

ROOT = Path(__file__).resolve().parents[4]
# A turn that nothing here reaches unless it hangs, and one that is over at once.
LONG_S = 60.0
SHORT_S = 0.001
# How long a test waits for a thread before it fails.
PATIENCE_S = 10.0


@dataclass
class Stage:
    """Lanes that are closed in the end; jobs that wait for a word; what late jobs have said."""

    lanes: list[SideLane] = field(default_factory=list[SideLane])
    words: list[threading.Event] = field(default_factory=list[threading.Event])
    late_done: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    told: RecordingTelemetry = field(default_factory=RecordingTelemetry)

    def lane(self, turn_s: float = LONG_S) -> SideLane:
        self.lanes.append(
            SideLane(f"lane-{id(self)}", turn_s, self.late_done.release, self.told.bound_reached)
        )
        return self.lanes[-1]

    def hanging(self) -> tuple[Callable[[], None], threading.Event, threading.Event]:
        """A job that hangs until it gets its word; an event when it has begun, and the word."""
        begun, word = threading.Event(), threading.Event()
        self.words.append(word)

        def run() -> None:
            begun.set()
            word.wait()

        return run, begun, word

    def await_late(self, jobs: int = 1) -> None:
        for _ in range(jobs):
            assert self.late_done.acquire(timeout=PATIENCE_S), "nobody told that a late job is done"

    @property
    def threads(self) -> int:
        return sum(thread.name == f"lane-{id(self)}" for thread in threading.enumerate())


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Afterwards every thread of its lanes has ended."""
    made = Stage()
    yield made
    for lane in made.lanes:
        lane.close()
    for word in made.words:
        word.set()
    until(lambda: made.threads == 0)


def until(is_true: Callable[[], bool]) -> None:
    """Yield to the other threads until it is so."""
    ends_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < ends_s, "it never came true"
        time.sleep(0)


def now() -> float:
    return time.monotonic()


def wait(lane: SideLane, *jobs: Job) -> None:
    for job in reversed(jobs):
        lane.wait(job, now() + PATIENCE_S)


def test_jobs_are_done_in_order_on_one_thread(stage: Stage) -> None:
    """Those that are quick share a thread, which stays for the next ones."""
    lane, said = stage.lane(), list[Any]()

    def say(place: int) -> None:
        said.append((place, threading.get_ident()))

    for _ in range(3):
        jobs = [lane.submit(partial(say, place)) for place in range(5)]
        wait(lane, *jobs)
        assert all(job.is_done and not job.is_late for job in jobs)
    assert [place for place, _ in said] == [*range(5)] * 3
    assert len({thread for _, thread in said}) == 1


def test_nothing_runs_before_there_is_something_to_do(stage: Stage) -> None:
    """An engine without processors and grammars has no more threads than before."""
    lane = stage.lane()
    assert stage.threads == 0
    lane.begin()
    assert stage.threads == 0


def test_a_job_that_was_begun_needs_nobody_who_waits(stage: Stage) -> None:
    """Masks are filled while the model computes."""
    lane = stage.lane()
    job = lane.submit(lambda: None)
    lane.begin()
    until(lambda: job.is_done)
    assert not job.is_late


def test_who_takes_longer_than_a_turn_loses_the_company(stage: Stage) -> None:
    """The others are done while he hangs, by another thread; when he comes back that is told, once."""
    lane = stage.lane(SHORT_S)
    run, begun, word = stage.hanging()
    hangs, quick = lane.submit(run), lane.submit(lambda: None)
    wait(lane, hangs, quick)
    assert begun.is_set()
    assert hangs.is_late
    assert hangs.is_alone
    until(lambda: quick.is_done and not hangs.is_done)
    word.set()
    # On a busy machine the quick one, too, may lose its turn.
    stage.await_late(1 + quick.is_late)
    assert hangs.is_done
    until(lambda: lane.threads_alone == 0)
    assert not stage.late_done.acquire(blocking=False)
    until(lambda: stage.threads == 1)


def test_a_step_waits_for_nobody_longer_than_it_wants(stage: Stage) -> None:
    """At its end, whoever is not done is late; that is no fault of those behind, who keep the lane."""
    lane = stage.lane()
    run, begun, word = stage.hanging()
    hangs, behind = lane.submit(run), lane.submit(lambda: None)
    lane.begin()
    assert begun.wait(PATIENCE_S)
    lane.wait(behind, now())
    lane.wait(hangs, now())
    assert (hangs.is_late, behind.is_late) == (True, True)
    assert (hangs.is_alone, behind.is_alone) == (False, False)
    word.set()
    stage.await_late(2)
    assert hangs.is_done
    assert behind.is_done


def test_who_is_late_because_of_another_one_need_not_wait_for_him(stage: Stage) -> None:
    """Also when no further step waits for anybody: a look is enough."""
    lane = stage.lane(SHORT_S)
    run, begun, _ = stage.hanging()
    hangs, behind = lane.submit(run), lane.submit(lambda: None)
    lane.begin()
    assert begun.wait(PATIENCE_S)
    lane.wait(behind, now())
    lane.wait(hangs, now())

    def is_done() -> bool:
        lane.look()
        return behind.is_done

    until(is_done)
    stage.await_late()
    assert hangs.is_alone
    assert not hangs.is_done


def test_who_is_known_to_be_slow_is_late_at_once(stage: Stage) -> None:
    """He has a thread of his own, and a wait for him returns."""
    lane = stage.lane()
    run, begun, word = stage.hanging()
    slow = lane.submit(run, is_slow=True)
    lane.wait(slow, now() + LONG_S)
    assert slow.is_late
    assert begun.wait(PATIENCE_S)
    quick = lane.submit(lambda: None)
    wait(lane, quick)
    assert not quick.is_late
    word.set()
    stage.await_late()


def test_slow_ones_share_threads_one_after_the_other(stage: Stage) -> None:
    """A thread for every token of every slow request would cost the engine's thread more than they do."""
    lane, threads = stage.lane(), list[int]()
    for _ in range(20):
        lane.submit(lambda: threads.append(threading.get_ident()), is_slow=True)
        stage.await_late()
        until(lambda: lane._resting == 1)
    assert len(threads) == 20
    assert len(set(threads)) == 1


def test_a_thread_without_slow_jobs_ends(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while; the next slow job gets a new one."""
    monkeypatch.setattr(side_lane, "_REST_S", 0.001)
    lane = stage.lane()
    for _ in range(3):
        lane.submit(lambda: None, is_slow=True)
        stage.await_late()
        until(lambda: stage.threads == 0)


def test_many_slow_jobs_and_few_threads(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is forgotten, however the threads come to rest and end between them."""
    monkeypatch.setattr(side_lane, "_REST_S", 0.0001)
    monkeypatch.setattr(side_lane, "MOST_ALONE", 3)
    lane = stage.lane()
    jobs = [lane.submit(lambda: None, ("a", "b")[number % 2 :], is_slow=True) for number in range(600)]
    stage.await_late(600)
    assert all(job.is_done for job in jobs)
    until(lambda: lane.threads_alone == 0)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_a_job_raises_is_kept(stage: Stage, error: type[BaseException]) -> None:
    """Whatever it is, the thread goes on with the next one."""

    def run() -> None:
        raise error

    lane = stage.lane()
    jobs = [lane.submit(run), lane.submit(lambda: None)]
    wait(lane, *jobs)
    assert isinstance(jobs[0].error, error)
    assert jobs[1].error is None
    assert stage.threads == 1


def test_of_too_many_stuck_ones_their_like_waits_and_others_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more threads for a name that has none back; other names have the lane and threads of their own."""
    monkeypatch.setattr(side_lane, "MOST_ALONE", 3)
    lane = stage.lane()
    hanging = [stage.hanging() for _ in range(4)]
    jobs = [lane.submit(run, ("bad",), is_slow=True) for run, _, _ in hanging]
    more = lane.submit(lambda: None, ("bad", "good"))
    good = lane.submit(lambda: None, ("good",))
    apart = lane.submit(lambda: None, ("good",), is_slow=True)
    wait(lane, more, good)
    assert not good.is_late
    assert more.is_late
    until(lambda: apart.is_done)
    stage.await_late(1)
    assert lane.threads_alone == 3
    assert not hanging[3][1].is_set()
    # The fourth that hangs, and the one that has its name beside another.
    assert stage.told.bounds == {Bound.FOREIGN_THREADS: 2}
    hanging[0][2].set()
    stage.await_late(1)
    assert hanging[3][1].wait(PATIENCE_S)
    for _, _, word in hanging:
        word.set()
    stage.await_late(4)
    assert all(job.is_done for job in [*jobs, more])
    assert lane.threads_alone == 0


def test_those_who_hang_on_the_lane_take_no_more_threads_than_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knew that they are slow: as many as may lose their turns, the rest of that name waits."""
    monkeypatch.setattr(side_lane, "MOST_ALONE", 2)
    lane = stage.lane(SHORT_S)
    hanging = [stage.hanging() for _ in range(5)]
    jobs = [lane.submit(run, ("bad",)) for run, _, _ in hanging]
    quick = lane.submit(lambda: None, ("good",))
    wait(lane, *jobs, quick)
    until(lambda: quick.is_done)
    assert lane.threads_alone == 2 + (quick.is_alone and not quick.is_done)
    assert [begun.is_set() for _, begun, _ in hanging] == [True, True, False, False, False]
    assert all(job.is_late for job in jobs)
    for _, _, word in hanging:
        word.set()
    stage.await_late(5 + quick.is_late)
    assert all(job.is_done for job in jobs)


def test_who_leaves_the_queue_of_the_slow_is_not_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While all threads are stuck, requests that come and go leave nothing behind, and never run."""
    monkeypatch.setattr(side_lane, "MOST_ALONE", 1)
    lane, ran = stage.lane(), list[int]()
    run, begun, word = stage.hanging()
    lane.submit(run, ("bad",), is_slow=True)
    assert begun.wait(PATIENCE_S)
    for number in range(50):
        lane.submit(partial(ran.append, number), ("bad",), is_slow=True).is_unwanted = True
    last = lane.submit(lambda: ran.append(-1), ("bad",), is_slow=True)
    assert len(lane._slow) <= 2
    word.set()
    until(lambda: last.is_done)
    assert ran == [-1]


def test_a_machine_without_threads_fails_the_jobs_and_nothing_else(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who need a thread are told; when there are threads again, the lane works."""
    lane = stage.lane()
    with monkeypatch.context() as patched:

        def start(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", start)
        jobs = [lane.submit(lambda: None), lane.submit(lambda: None), lane.submit(lambda: None, is_slow=True)]
        wait(lane, *jobs)
        assert [type(job.error) for job in jobs] == [RuntimeError] * 3
        assert all(job.is_done for job in jobs)
        assert lane.threads_alone == 0
    after = lane.submit(lambda: None)
    wait(lane, after)
    assert after.error is None


def test_an_endless_loop_is_ended_by_an_interruption(stage: Stage) -> None:
    """What runs for nobody must not take a core for ever; its thread ends, too."""
    lane, begun = stage.lane(SHORT_S), threading.Event()

    def run() -> None:
        while True:
            begun.set()

    job = lane.submit(run)
    wait(lane, job)
    assert begun.wait(PATIENCE_S)
    assert job.is_alone
    job.interrupt()
    stage.await_late()
    assert isinstance(job.error, Interrupted)
    quick = lane.submit(lambda: None)
    wait(lane, quick)
    until(lambda: stage.threads == 1)


def test_an_interruption_hits_nobody_else(stage: Stage) -> None:
    """However close to a job's end it comes, the job is done and the next one on that thread is whole."""
    lane = stage.lane()
    for _ in range(300):
        begun = threading.Event()
        first, second = lane.submit(begun.set), lane.submit(lambda: None)
        lane.begin()
        assert begun.wait(PATIENCE_S)
        first.interrupt()
        first.interrupt()
        wait(lane, first, second)
        assert first.is_done
        assert first.error is None or isinstance(first.error, Interrupted)
        assert (second.is_done, second.error) == (True, None)
    assert stage.threads == 1


def test_after_close_nothing_is_left_but_what_is_stuck(stage: Stage) -> None:
    """The idle thread ends, and so does a stuck one when it comes back."""
    lane = stage.lane(SHORT_S)
    run, _, word = stage.hanging()
    wait(lane, lane.submit(run), lane.submit(lambda: None))
    lane.close()
    until(lambda: stage.threads == 1)
    word.set()
    until(lambda: stage.threads == 0)


def test_the_interpreter_changes_hands_quickly_while_somebody_is_alone(stage: Stage) -> None:
    """An endless loop must not keep it for 5 ms after every operator; afterwards all is as before."""
    before_s = sys.getswitchinterval()
    lane = stage.lane()
    hanging = [stage.hanging() for _ in range(2)]
    for run, begun, _ in hanging:
        lane.submit(run, is_slow=True)
        assert begun.wait(PATIENCE_S)
    assert sys.getswitchinterval() < 0.001 <= before_s
    hanging[0][2].set()
    stage.await_late()
    assert sys.getswitchinterval() < 0.001
    hanging[1][2].set()
    stage.await_late()
    assert sys.getswitchinterval() == before_s


# In a process of its own: one that hangs here cannot even be ended by the test's own time-out.
INTERRUPTS = """
import sys, threading, time
from actors.engines.foreign.side_job import Job

def loops():
    until_s = time.monotonic() + 0.02
    while time.monotonic() < until_s:
        pass

errors = 0
for number in range(40):
    job = Job(loops)
    thread = threading.Thread(target=job.perform)
    thread.start()
    time.sleep(number / 2000)
    job.interrupt()
    thread.join()
    errors += job.error is not None
assert errors

lines = []
def look(frame, event, _):
    lines.append(event)
    return look
def traced():
    one = 1
    return one + 1
sys.settrace(look)
traced()
sys.settrace(None)
print(lines)
"""


def test_nothing_is_left_of_an_interrupt() -> None:
    """Whenever it came, the interpreter has forgotten it: a debugger can still follow the process."""
    # The test's own time-out cannot end what hangs there.
    child = subprocess.run(
        [sys.executable, "-c", INTERRUPTS], cwd=ROOT, capture_output=True, text=True, timeout=15, check=False
    )
    assert (child.returncode, child.stdout) == (0, "['call', 'line', 'line', 'return']\n"), child.stderr
