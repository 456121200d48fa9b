"""The figures to reach, and whether they are."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.cancel import BESIDE_PACED, IDLE
from tests.bench.in_process import TRACED, UNLOGGED, WORKER
from tests.bench.parts import OURS, PACED, SAMPLE, SATURATED, TICK, UNMERGED


@dataclass(frozen=True, slots=True)
class Goal:
    """At this load, this figure of ``contestant`` is at most so many times that of ``against``."""

    part: str
    concurrency: int
    contestant: str
    against: str
    figure: str
    at_most: float


def _cpu(part: str, concurrency: int, against: str, at_most: float, contestant: str = OURS) -> Goal:
    return Goal(part, concurrency, contestant, against, "worker_cpu", at_most)


GOALS = (
    _cpu(SATURATED, 1, SAMPLE, 0.65),
    _cpu(SATURATED, 16, SAMPLE, 0.25),
    _cpu(SATURATED, 64, SAMPLE, 0.20),
    _cpu(SATURATED, 256, SAMPLE, 0.20),
    _cpu(SATURATED, 64, SAMPLE, 1.10, UNMERGED),
    _cpu(PACED, 16, SAMPLE, 0.60),
    _cpu(PACED, 64, SAMPLE, 0.65),
    _cpu(PACED, 256, SAMPLE, 0.75),
    _cpu(PACED, 64, TICK, 1.05),
    _cpu(PACED, 256, TICK, 0.88),
    Goal(PACED, 64, OURS, SAMPLE, "ttft_p99", 1.05),
    Goal(PACED, 64, OURS, SAMPLE, "itl_p99", 1.05),
)

# Microseconds of CPU that one request of one token costs in process, over a bare generator. By layer.
REQUEST_OVERHEAD_US = {UNLOGGED: 80.0, WORKER: 80.0, TRACED: 250.0}

# Milliseconds from a client's close to the end of its request, 99th percentile. By what runs beside.
CANCEL_MS = {IDLE: 5.0, BESIDE_PACED: 20.0}


def goal_of(part: str, concurrency: int, contestant: str, against: str, figure: str) -> float | None:
    """The highest ratio that meets the goal; None where there is no goal."""
    asked = (part, concurrency, contestant, against, figure)
    for goal in GOALS:
        if (goal.part, goal.concurrency, goal.contestant, goal.against, goal.figure) == asked:
            return goal.at_most
    return None
