"""What the tests of engine faults share: let a fault happen, know when it did, and sum up what came of it."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from tests.doubles.hostile_engine import Fault, seed_of
from tests.doubles.hostile_process import engine_child
from tests.e2e.waiting import PATIENCE_S, wait_until
from tests.faults.load import Answer, Kind, Load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.e2e.stacks import Stack, Worker

# With the one that is hit: 64 streams.
OTHERS = 63
# A marked request that has got so far has met no engine that heeds marks.
_PAST_FAULT = 30
# Settings of a worker whose engine keeps its word whatever a request asks.
SOUND = {"heeds_marks": False}


def fault_s(worker: Worker, fault: Fault) -> float | None:
    """When the hostile engine committed it (monotonic), None as long as it has not."""
    found = re.search(rf"hostile: {fault.name} at ([0-9.]+)", worker.log())
    return None if found is None else float(found[1])


def strike(load: Load, worker: Worker, fault: Fault, *, max_tokens: int = 200) -> float:
    """Send marked requests until one has hit this worker, the only one that heeds them; when it did."""
    for _ in range(8):
        (marked,) = load.start(Kind.PLAIN, max_tokens=max_tokens, seed=seed_of(fault))

        def is_over(marked: Answer = marked) -> bool:
            return marked.events_seen >= _PAST_FAULT or marked.ended_s is not None

        wait_until(
            lambda: fault_s(worker, fault) is not None or is_over(),
            lambda: "neither hit nor past it",
            every_s=0.005,
        )
        if (at_s := fault_s(worker, fault)) is not None:
            return at_s
    raise AssertionError(f"no request hit the worker: {fault}")


def mixed(load: Load, max_tokens: int) -> None:
    """64 requests of all kinds: those that a frontend can move, and 16 that it cannot."""
    load.start(Kind.PLAIN, 40, max_tokens=max_tokens)
    load.start(Kind.UNARY, 8, max_tokens=max_tokens)
    load.start(Kind.TWO_CHOICES, 8, max_tokens=max_tokens)
    load.start(Kind.GUIDED, 8, max_tokens=max_tokens)


def incomplete(answers: Sequence[Answer]) -> list[str]:
    """Those that are not complete and exact, in words."""
    return [str(answer) for answer in answers if not answer.is_complete]


@dataclass(frozen=True, slots=True)
class Survival:
    """What a worker's end cost, as figures. lost: of what can move. told: of what cannot, with an error."""

    lost: str
    told: str


def check_survived(answers: Sequence[Answer]) -> Survival:
    """The promise when a worker ends beside another one.

    What a frontend can move is complete and exact; of the rest each is complete, or ends with an error.
    """
    movable = [answer for answer in answers if answer.kind.is_movable]
    fixed = [answer for answer in answers if not answer.kind.is_movable]
    lost = incomplete(movable)
    assert lost == []
    assert [
        str(answer) for answer in fixed if answer.is_silent or answer.is_hung or not answer.is_exact
    ] == []
    assert [str(answer) for answer in fixed if not (answer.is_complete or answer.is_error)] == []
    told = sum(answer.is_error for answer in fixed)
    return Survival(f"{len(lost)} of {len(movable)}", f"{told} of {len(fixed)}")


@dataclass(frozen=True, slots=True)
class Death:
    """A worker's end beside another one. seconds: from what it died of to exit 70. ended_s: monotonic."""

    seconds: float
    ended_s: float
    answers: list[Answer]
    survived: Survival


def die(stack: Stack, strikes: Callable[[Load], float], *, max_tokens: int = 300) -> Death:
    """Mixed load on two workers, and what the first one dies of: exit 70, and what can move is exact.

    strikes: does it, and says when that was.
    """
    with Load(stack.http_port, stack.model()) as load:
        mixed(load, max_tokens)
        load.wait_tokens(10)
        struck_s = strikes(load)
        code, ended_s = exit_of(stack.workers[0])
        answers = load.finish()
    assert code == 70
    return Death(ended_s - struck_s, ended_s, answers, check_survived(answers))


def exit_of(worker: Worker, timeout_s: float = PATIENCE_S) -> tuple[int, float]:
    """Its exit code, and when it was there (monotonic). After the time-out it is killed: -9."""
    code = worker.child.wait(timeout_s)
    return code, time.monotonic()


def engine_process(worker: Worker) -> psutil.Process:
    """The child process of a worker with ``in_process: false``, or of TensorRT-LLM's."""
    for child in psutil.Process(worker.child.pid).children(recursive=True):
        if "tests.doubles.process_engine" in child.cmdline():
            return child
    found = engine_child(worker.child.pid)
    assert found is not None, "the worker has no engine process"
    return found


def kill_engine(worker: Worker) -> float:
    """SIGKILL for the engine's process alone; when that was."""
    engine_process(worker).send_signal(signal.SIGKILL)
    return time.monotonic()


def instances(discovery: Path) -> int:
    """Workers in the discovery folder."""
    return sum(1 for file in discovery.rglob("*") if file.is_file() and "instances" in str(file))
