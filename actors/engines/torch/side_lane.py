"""Foreign work beside the engine's thread: grammars and logits processors, which nobody can hurry.

Jobs run in order on one thread, and the engine's thread waits for them, a turn a step at most. A job
that takes longer than a turn loses the company, not the lane: its thread stays with it, another one goes
on with the rest, and the engine's thread no longer waits for it. Jobs that are known to be slow get a
thread of their own at once. So what one request brings along delays the others by one turn, once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from actors.engines.foreign.side_job import Job
from actors.engines.torch.switching import SHORT_TURNS
from protocols.bounds import Bound, OnBound, ignore_bound

# Threads that are alone with code of one name. From here on, whoever has that name waits for one of them
# to come back; others go on.
MOST_ALONE = 64
# How long a thread for slow jobs waits for the next one. A new thread for each would cost the engine's
# thread, which starts it, a millisecond a job.
_REST_S = 1.0


class SideLane:
    """Threads are daemons and start when there is something to do.

    turn_s: how long a job may keep the lane, in seconds. on_late_done: called, in any thread, when a
    job that nobody waited for is done. on_bound: told, in any thread, of a job that waits for its name's turn
    because `MOST_ALONE` threads are with its like.
    """

    def __init__(
        self, name: str, turn_s: float, on_late_done: Callable[[], None], on_bound: OnBound = ignore_bound
    ) -> None:
        self._on_bound = on_bound
        self._name = name
        self._turn_s = turn_s
        self._on_late_done = on_late_done
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._has_done = threading.Condition(self._lock)
        self._waiting: deque[Job] = deque()
        self._has_slow = threading.Condition(self._lock)
        # Slow ones that wait for a seat, and those that have one and are about to begin.
        self._slow: deque[Job] = deque()
        self._seated: deque[Job] = deque()
        # Threads that wait for slow ones.
        self._resting = 0
        self._is_closed = False
        # Of the thread that serves the lane; another one than its own tells a thread to leave.
        self._server: object = None
        self._current: Job | None = None
        self._awaited: Job | None = None
        # Jobs that are alone with a thread, by name.
        self._alone: Counter[str] = Counter()
        self._threads_alone = 0

    @property
    def threads_alone(self) -> int:
        """Threads that are with a job nobody waits for."""
        return self._threads_alone

    def submit(self, run: Callable[[], None], names: tuple[str, ...] = (), *, is_slow: bool = False) -> Job:
        """Engine's thread: do this when somebody waits for it, or `begin` was called.

        What is known to be slow begins now, on a thread of its own, and is late from the beginning.
        """
        job = Job(run, names)
        with self._lock:
            if is_slow:
                self._set_apart(job)
                self._start_slow()
            else:
                self._waiting.append(job)
        return job

    def begin(self) -> None:
        """Engine's thread: do not wait for somebody to wait."""
        with self._lock:
            self._wake()

    def wait(self, job: Job, until_s: float) -> None:
        """Engine's thread: until it is done or late. At ``until_s`` (monotonic) it is late in any case."""
        with self._lock:
            # Not with every submit: two threads that want the interpreter at once only hold each other up.
            self._wake()
            while not job.is_done and not job.is_late:
                self._await(job, until_s)
            self._awaited = None

    def look(self) -> None:
        """Engine's thread, now and then while somebody is late: he may be so because of another one."""
        with self._lock:
            current = self._current
            if current is not None and self._turn_ends_s(current) <= time.monotonic():
                self._leave_alone(current)

    def close(self) -> None:
        """Engine's thread: the idle threads may go. What is stuck goes with the process."""
        with self._lock:
            self._is_closed = True
            self._server = None
            for jobs in (self._waiting, self._slow, self._seated):
                jobs.clear()
            self._has_work.notify_all()
            self._has_slow.notify_all()

    def _is_full(self, job: Job) -> bool:
        """Whether too many threads are with its like."""
        return any(self._alone[name] >= MOST_ALONE for name in job.names)

    def _set_apart(self, job: Job) -> None:
        """It is late, and begins when its names have a thread to spare."""
        job.is_late = True
        if self._is_full(job):
            self._on_bound(Bound.FOREIGN_THREADS)
        # Whoever leaves while all threads are stuck must not be kept for ever.
        self._slow = deque(slow for slow in self._slow if not slow.is_unwanted)
        self._slow.append(job)
        if job is self._awaited:
            self._has_done.notify()

    def _wake(self) -> None:
        if self._waiting and self._server is None:
            self._take_over()
        elif self._waiting and self._current is None:
            self._has_work.notify()

    def _await(self, job: Job, until_s: float) -> None:
        """Sleep once, or find out that somebody's time is up."""
        now_s = time.monotonic()
        current = self._current
        # Whoever is next may begin in a moment, without a word to anybody.
        turn_ends_s = now_s + self._turn_s if current is None else self._turn_ends_s(current)
        if current is not None and turn_ends_s <= now_s:
            self._leave_alone(current)
        elif until_s <= now_s:
            job.is_late = True
        else:
            self._awaited = job
            self._has_done.wait(min(turn_ends_s, until_s) - now_s)

    def _turn_ends_s(self, current: Job) -> float:
        assert current.started_s is not None
        return current.started_s + self._turn_s

    def _leave_alone(self, current: Job) -> None:
        """Its turn is over: it keeps the thread, another one takes the lane."""
        current.is_late = True
        self._count_alone(current)
        self._current = None
        self._take_over()

    def _count_alone(self, job: Job) -> None:
        job.is_alone = True
        self._alone.update(job.names)
        self._threads_alone += 1
        SHORT_TURNS.begin()

    def _take_over(self) -> None:
        """A new thread serves the lane; the one before leaves when it comes back."""
        self._server = server = object()
        problem = self._start(self._serve, server)
        if problem is not None:
            self._server = None
            while self._waiting:
                self._set_done(self._waiting.popleft(), problem)

    def _start_slow(self) -> None:
        """All whose names have threads to spare; the others keep their order."""
        queue, self._slow = self._slow, deque[Job]()
        for job in queue:
            if self._is_full(job):
                self._slow.append(job)
                continue
            self._count_alone(job)
            self._seated.append(job)
            if len(self._seated) <= self._resting:
                self._has_slow.notify()
                continue
            problem = self._start(self._serve_slow)
            if problem is not None:
                self._seated.pop()
                self._set_done(job, problem)
                self._on_late_done()

    def _start(self, target: Callable[..., None], *arguments: object) -> Exception | None:
        """A new thread. Why there is none, when the machine has no more."""
        try:
            threading.Thread(target=target, args=arguments, name=self._name, daemon=True).start()
        except (RuntimeError, MemoryError) as exc:
            return exc
        return None

    def _serve(self, server: object) -> None:
        """A thread."""
        while True:
            with self._lock:
                while not self._waiting and server is self._server:
                    self._has_work.wait()
                if server is not self._server:
                    return
                job = self._waiting.popleft()
                if self._is_full(job):
                    # It might hang like the others, and take one thread more.
                    self._set_apart(job)
                    continue
                self._current = job
                job.started_s = time.monotonic()
            self._run(job)

    def _serve_slow(self) -> None:
        """A thread: one slow job after the other, as long as there are some."""
        while True:
            with self._lock:
                if not self._seated and not self._is_closed:
                    self._resting += 1
                    self._has_slow.wait(_REST_S)
                    self._resting -= 1
                if not self._seated:
                    return
                job = self._seated.popleft()
            self._run(job)

    def _run(self, job: Job) -> None:
        """A thread."""
        job.perform()
        with self._lock:
            self._set_done(job)
            if job is self._awaited:
                self._has_done.notify()
            self._start_slow()
            is_late = job.is_late
        if is_late:
            self._on_late_done()

    def _set_done(self, job: Job, problem: Exception | None = None) -> None:
        job.error = job.error or problem
        job.is_done = True
        if self._current is job:
            self._current = None
        if job.is_alone:
            self._alone.subtract(job.names)
            self._threads_alone -= 1
            SHORT_TURNS.end()
