"""The engine's end, within a bounded time: the library is asked first, then its processes are ended."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from actors.engines.trtllm.life.children import end_all
from actors.engines.trtllm.life.daemons import begin_in_daemon

# The library waits for its processes and threads, some of which may be dead or stuck.
SHUTDOWN_S = 5.0
# For processes that it has left behind.
_LEAVE_S = 1.0

_log = logging.getLogger(__name__)


async def shut_down(llm: Any, processes: set[int], within_s: float = SHUTDOWN_S) -> None:
    """Event loop. ``processes``: what the engine has started; none of it is left afterwards.

    An error of the library is no reason to stop: it raises an old one of some request here, too.
    """
    done = begin_in_daemon("trtllm-shutdown", llm.shutdown)
    try:
        await asyncio.wait_for(done, within_s)
    except TimeoutError:
        _log.warning("TensorRT-LLM did not shut down within %g s; its processes are ended", within_s)
    except Exception as exc:
        _log.warning("TensorRT-LLM did not shut down in order (%s)", type(exc).__name__)
    finally:
        killed = await begin_in_daemon("trtllm-end", partial(end_all, processes, _LEAVE_S))
        if killed:
            _log.warning("%d processes of TensorRT-LLM had to be killed", killed)
