"""The side lanes of an engine, and one sequence's place on each."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from actors.engines.foreign.side_job import Job
from actors.engines.torch.side_lane import SideLane
from protocols.bounds import OnBound, ignore_bound

# How long a step waits for all that it has begun, and how long a job may hold up everybody once; a mask
# takes 0.1 ms and the first ones up to 10.
TURN_S = 0.02
# What a job may take a token without being called slow. What it takes more adds up, what it takes less is
# paid back; above a turn, its sequence waits alone from then on.
FAIR_S = 0.001


@dataclass(slots=True)
class Lanes:
    """Masks do not wait behind processors.

    clock: seconds; decides when a request is given up.
    on_bound: told, in any thread, of what is late or given up.
    """

    masks: SideLane
    processors: SideLane
    clock: Callable[[], float] = time.monotonic
    on_bound: OnBound = ignore_bound

    @classmethod
    def open(cls, on_late_done: Callable[[], None], on_bound: OnBound) -> Lanes:
        """Nothing runs until there is something to do. ``on_late_done`` is called in other threads."""
        return cls(
            masks=SideLane("torch-masks", TURN_S, on_late_done, on_bound),
            processors=SideLane("torch-processors", TURN_S, on_late_done, on_bound),
            on_bound=on_bound,
        )

    def close(self) -> None:
        """Their idle threads may go."""
        self.masks.close()
        self.processors.close()


class Turn:
    """How long the step may still wait for foreign code: of all rows, and for all that is done in it.

    Only the engine's thread uses it.
    """

    def __init__(self) -> None:
        self._left_s = TURN_S

    def begin(self) -> None:
        """Another step."""
        self._left_s = TURN_S

    @contextmanager
    def waiting(self) -> Generator[float]:
        """Around a wait: until when (monotonic seconds)."""
        started_s = time.monotonic()
        yield started_s + self._left_s
        self._left_s = max(0.0, self._left_s - (time.monotonic() - started_s))


class Place:
    """One sequence on one lane: its job there, and whether it has been too slow for company."""

    __slots__ = ("_is_apart", "_lane", "_names", "_overdraft_s", "is_slow", "job")

    def __init__(self, lane: SideLane, names: tuple[str, ...]) -> None:
        self._lane = lane
        self._names = names
        self.is_slow = False
        self.job: Job | None = None
        self._is_apart = False
        self._overdraft_s = 0.0

    @property
    def is_running(self) -> bool:
        """Whether there is a job that is not done."""
        return self.job is not None and not self.job.is_done

    def submit(self, run: Callable[[], None], *, is_apart: bool = False) -> None:
        """A job that begins with `begin` or `wait`.

        is_apart: on a thread of its own this once, which says nothing about the next one.
        """
        self._is_apart = is_apart or self.is_slow
        self.job = self._lane.submit(run, self._names, is_slow=self._is_apart)

    def begin(self) -> None:
        """Do not wait for somebody to wait."""
        self._lane.begin()

    def wait(self, until_s: float) -> None:
        """Until the job is done or late; at the latest until then (monotonic)."""
        if self.job is not None:
            self._lane.wait(self.job, until_s)

    def look(self) -> None:
        """It is late: see to it that it need not wait for another one."""
        self._lane.look()

    def leave(self) -> None:
        """Nobody wants it any more: it need not begin, and is interrupted if it has."""
        if self.job is not None:
            self.job.is_unwanted = True
            self.job.interrupt()

    def take(self) -> BaseException | None:
        """Put the job away, which is done, and say what it raised."""
        job, self.job = self.job, None
        if job is None:
            return None
        if not self._is_apart:
            self._overdraft_s = max(0.0, self._overdraft_s + job.took_s - FAIR_S)
            self.is_slow = job.is_alone or self._overdraft_s > TURN_S
        return job.error
