"""The worker while it is loaded: a sample every ten seconds, and the slope of its memory."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.stacks import Stack

_EVERY_S = 10.0
_MB = 1024 * 1024
_DEPTH = re.compile(r"^dynamo_actor_mailbox_depth\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """at_s: from the beginning. waiting: messages in all mailboxes."""

    at_s: float
    worker_mb: float
    frontend_mb: float
    tasks: int
    live: int
    in_flight: int
    readers: int
    waiting: int
    started: int
    ended: int


@dataclass(slots=True)
class Sampler:
    """Takes them in a thread of its own, and asks ``/health`` each time."""

    stack: Stack
    say: Callable[[str], None]
    samples: list[Sample] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _began_s: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Sampler:
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join(30)

    def take(self) -> Sample:
        """One now. Books that do not balance, or a sick worker, are noted."""
        worker, frontend = self.stack.workers[0], self.stack.frontend
        assert frontend is not None
        if not worker.is_healthy():
            self.flaws.append("/health is not 200")
        status = worker.status()
        _, metrics = worker.system.get("/metrics")
        sample = Sample(
            at_s=time.monotonic() - self._began_s,
            worker_mb=status["rss_bytes"] / _MB,
            frontend_mb=psutil.Process(frontend.pid).memory_info().rss / _MB,
            tasks=status["tasks"],
            live=status["live"],
            in_flight=status["in_flight"],
            readers=status["readers"],
            waiting=int(sum(float(depth) for depth in _DEPTH.findall(metrics))),
            started=status["started"],
            ended=sum(status["outcomes"].values()),
        )
        if sample.started != sample.ended + sample.live:
            self.flaws.append(f"books: {sample.started} started, {sample.ended} ended, {sample.live} live")
        self.samples.append(sample)
        return sample

    def _run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            sample = self.take()
            self.say(
                f"  {sample.at_s:5.0f} s  worker {sample.worker_mb:6.1f} MB  {sample.tasks} tasks"
                f"  {sample.live} live  {sample.in_flight} in flight  {sample.ended:,} ended"
            )


def slope_mb_per_h(samples: list[Sample]) -> float:
    """Of the worker's memory, by least squares, without the first fifth, in which it still warms up."""
    warm = samples[len(samples) // 5 :]
    if len(warm) < 2:
        return 0.0
    mean_s = sum(sample.at_s for sample in warm) / len(warm)
    mean_mb = sum(sample.worker_mb for sample in warm) / len(warm)
    spread = sum((sample.at_s - mean_s) ** 2 for sample in warm)
    together = sum((sample.at_s - mean_s) * (sample.worker_mb - mean_mb) for sample in warm)
    return together / spread * 3600
