"""Waiting until no other worker can be reading what this one has handed over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from protocols.engine import Engine
from service.telemetry.logs import get_logger

# Nobody tells when a KV cache has been read: how often to look.
_LOOK_S = 0.05
# How often the log says for how many we wait.
_HEARTBEAT_S = 5.0


async def wait_transferred(engine: Engine, until_s: Callable[[], float]) -> int:
    """Until nothing is pending, or until a point of monotonic time, which may change. Returns what is left.

    An engine that is stopped before takes the KV cache with it, and with that the answer of a request that
    another worker is serving.
    """
    log, say_at_s = get_logger("service.transfers"), 0.0
    while pending := engine.pending_transfers:
        # In this order: a point that is "now" has been reached.
        end_s, now_s = until_s(), time.monotonic()
        left_s = end_s - now_s
        if left_s <= 0:
            log.warning("transfers.left_behind", pending=pending)
            break
        if now_s >= say_at_s:
            log.info("transfers.waiting", pending=pending, left_s=round(left_s, 3))
            say_at_s = now_s + _HEARTBEAT_S
        await asyncio.sleep(min(_LOOK_S, left_s))
    return pending
