"""Calls that block, in threads that keep nobody from ending.

The threads of the loop's own pool are few, and a process waits for them when it ends: one call that does not
come back would hold up all the others, and the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def begin_in_daemon(name: str, call: Callable[[], T]) -> asyncio.Future[T]:
    """Event loop: begin the call now. Cancelling the future ends the waiting, and not the call.

    What is no Exception (a library that wanted the process to end, a panic in another language) becomes a
    RuntimeError: it is the call that failed.
    """
    done: Future[T] = Future()
    threading.Thread(target=_run, args=(call, done), name=name, daemon=True).start()
    return asyncio.wrap_future(done)


def _run(call: Callable[[], T], done: Future[T]) -> None:
    # A waiter that has gone does not want to hear of it.
    with suppress(InvalidStateError):
        try:
            result = call()
        except Exception as exc:
            done.set_exception(exc)
        except BaseException as exc:
            done.set_exception(RuntimeError(type(exc).__name__))
        else:
            done.set_result(result)
