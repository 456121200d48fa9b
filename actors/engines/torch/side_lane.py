"""Foreign work beside the engine's thread: grammars and logits processors, which nobody can interrupt.

Jobs run in order on one thread, and the engine's thread waits for them. A job that takes longer than
its turn loses the company, not the lane: the thread stays with it, another one goes on with the rest,
and the engine's thread no longer waits for it. So what one request brings along can delay the others
by one turn, once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable


class Job:
    """One piece of work. is_late: nobody waits for it any more. error: what it raised."""

    __slots__ = ("error", "is_done", "is_late", "run", "started_s")

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.started_s: float | None = None
        self.is_done = False
        self.is_late = False
        self.error: BaseException | None = None


class SideLane:
    """Jobs in order; threads are daemons and start when there is something to do.

    turn_s: how long a job may hold up the others. on_late_done: called, in the job's thread, when a
    job that nobody waited for is done.
    """

    def __init__(self, name: str, turn_s: float, on_late_done: Callable[[], None]) -> None:
        self._name = name
        self._turn_s = turn_s
        self._on_late_done = on_late_done
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        # Of the thread that serves the lane; another one than its own tells a thread to leave.
        self._server: object = None
        self._current: Job | None = None
        self._late = 0

    @property
    def late_jobs(self) -> int:
        """Threads that are still with a job nobody waits for."""
        return self._late

    def submit(self, run: Callable[[], None], *, is_slow: bool = False) -> Job:
        """Engine's thread: do this soon. Known to be slow: at once, on a thread of its own, and late."""
        job = Job(run)
        with self._changed:
            if is_slow:
                self._leave_alone(job)
                self._start(self._run_alone, job)
            else:
                self._waiting.append(job)
                if self._server is None:
                    self._take_over()
                self._changed.notify_all()
        return job

    def wait(self, jobs: list[Job]) -> None:
        """Engine's thread: until each is done or late."""
        with self._changed:
            while any(not job.is_done and not job.is_late for job in jobs):
                self._changed.wait(self._turn_left_s())
                if self._current is not None and self._turn_left_s() <= 0:
                    self._leave_alone(self._current)
                    self._current = None
                    self._take_over()

    def close(self) -> None:
        """Engine's thread: the idle thread may go. What is stuck goes with the process."""
        with self._changed:
            self._server = None
            self._waiting.clear()
            self._changed.notify_all()

    def _turn_left_s(self) -> float:
        if self._current is None or self._current.started_s is None:
            return self._turn_s
        return self._current.started_s + self._turn_s - time.monotonic()

    def _leave_alone(self, job: Job) -> None:
        job.is_late = True
        self._late += 1

    def _take_over(self) -> None:
        """A new thread serves the lane; the one before leaves when it comes back."""
        self._server = server = object()
        self._start(self._serve, server)

    def _start(self, target: Callable[..., None], argument: object) -> None:
        threading.Thread(target=target, args=(argument,), name=self._name, daemon=True).start()

    def _serve(self, server: object) -> None:
        """A thread."""
        while True:
            with self._changed:
                while not self._waiting and server is self._server:
                    self._changed.wait()
                if server is not self._server:
                    return
                job = self._current = self._waiting.popleft()
                job.started_s = time.monotonic()
            self._run(job)

    def _run_alone(self, job: Job) -> None:
        """A thread."""
        job.started_s = time.monotonic()
        self._run(job)

    def _run(self, job: Job) -> None:
        try:
            job.run()
        except BaseException as exc:
            # Whatever foreign code raises belongs to the request that brought it along.
            job.error = exc
        with self._changed:
            job.is_done = True
            if self._current is job:
                self._current = None
            if job.is_late:
                self._late -= 1
            self._changed.notify_all()
        if job.is_late:
            self._on_late_done()
