"""Several calls at once, each of which waits for somebody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

# A signal that comes just before a thread blocks, or in another thread, does not wake it: Python runs its
# handler when the thread looks up.
_LOOK_UP_S = 0.1


def at_once(calls: Sequence[Callable[[], T]], most: int) -> list[T]:
    """What they return, in their order; made in no more than ``most`` threads. Raises what one of them does.

    Whoever leaves early, by a signal too, waits for nobody: the threads are daemons, and begin no other call.
    """
    futures: list[Future[T]] = [Future() for _ in calls]
    waiting = deque(zip(futures, calls, strict=True))
    try:
        for _ in range(min(len(calls), most)):
            Thread(target=_work, args=(waiting,), daemon=True).start()
        return [_result(future) for future in futures]
    finally:
        waiting.clear()


def _result(future: Future[T]) -> T:
    while not future.done():
        wait((future,), timeout=_LOOK_UP_S)
    return future.result()


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
