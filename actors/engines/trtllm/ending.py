"""The engine's end, within a bounded time: the library is asked first, then its processes are ended."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from actors.engines.trtllm.children import end_all

# The library waits for its processes and threads, some of which may be dead or stuck.
SHUTDOWN_S = 5.0
# For processes that it has left behind.
_LEAVE_S = 1.0

_log = logging.getLogger(__name__)


async def shut_down(llm: Any, processes: set[int], within_s: float = SHUTDOWN_S) -> None:
    """Event loop. ``processes``: what the engine has started; none of it is left afterwards.

    An error of the library is no reason to stop: it raises an old one of some request here, too.
    """
    done: Future[None] = Future()
    thread = threading.Thread(target=_shut_down, args=(llm, done), name="trtllm-shutdown", daemon=True)
    thread.start()
    try:
        await asyncio.wait_for(asyncio.wrap_future(done), within_s)
    except TimeoutError:
        _log.warning("TensorRT-LLM did not shut down within %g s; its processes are ended", within_s)
    except Exception as exc:
        _log.warning("TensorRT-LLM did not shut down in order (%s)", type(exc).__name__)
    finally:
        killed = await asyncio.to_thread(end_all, processes, _LEAVE_S)
        if killed:
            _log.warning("%d processes of TensorRT-LLM had to be killed", killed)


def _shut_down(llm: Any, done: Future[None]) -> None:
    try:
        llm.shutdown()
    except Exception as exc:
        # A waiter that has gone does not want to hear of it.
        with suppress(InvalidStateError):
            done.set_exception(exc)
    except BaseException as exc:
        # A library that wanted this process to end, or panicked in another language: as any other failure.
        with suppress(InvalidStateError):
            done.set_exception(RuntimeError(type(exc).__name__))
    else:
        with suppress(InvalidStateError):
            done.set_result(None)
