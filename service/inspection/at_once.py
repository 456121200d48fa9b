"""Several calls at once, each of which waits for somebody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def at_once(calls: Sequence[Callable[[], T]], most: int) -> list[T]:
    """What they return, in their order; made in no more than ``most`` threads. Raises what one of them does.

    Whoever leaves early, by a signal too, waits for nobody: the threads are daemons, and begin no other call.
    """
    futures: list[Future[T]] = [Future() for _ in calls]
    waiting = deque(zip(futures, calls, strict=True))
    try:
        for _ in range(min(len(calls), most)):
            Thread(target=_work, args=(waiting,), daemon=True).start()
        return [future.result() for future in futures]
    finally:
        waiting.clear()


def _work(waiting: deque[tuple[Future[T], Callable[[], T]]]) -> None:
    while True:
        try:
            future, call = waiting.popleft()
        except IndexError:
            return
        try:
            future.set_result(call())
        except BaseException as exc:
            future.set_exception(exc)
