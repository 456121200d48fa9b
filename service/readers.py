"""Which generators are still being read: the count that ``cleanup()`` must bring to zero.

The framework aborts the process when ``cleanup()`` returns while a generator is alive, and it
closes generators whenever its garbage collector gets to it, on any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from actors.ticket import Ticket
from protocols.telemetry import CancelReason

# A generator whose client has left, or that has given its last word, is dropped, not closed; it may
# never tell us. Measured: gone within 0.1 s; waiting longer than this for it would only delay the exit.
ABORTED_READER_S = 1.0
# How often the log says for how many we wait.
_HEARTBEAT_S = 5.0
# How often to look whether a client has left: nobody tells us when its request has already ended.
_LOOK_S = 0.1


class Readers:
    """Loop only. on_waiting: told for how many is waited, and for how many seconds at most."""

    def __init__(self, on_waiting: Callable[[int, float], None]) -> None:
        self._on_waiting = on_waiting
        self._open: set[Ticket] = set()
        self._changed = asyncio.Event()

    def opened(self, ticket: Ticket) -> None:
        """``generate()`` has begun to read this request."""
        self._open.add(ticket)

    def closed(self, ticket: Ticket) -> None:
        """Its generator is closed; saying so twice does not matter."""
        self._open.discard(ticket)
        self._changed.set()

    def __len__(self) -> int:
        return sum(not ticket.outbox.is_abandoned for ticket in self._open)

    async def wait_closed(self, until_s: float) -> int:
        """Wait for every reader that is still there, until a point of the loop's clock.

        Readers that nobody awaits any more get one second; those that are abandoned get none. Returns how
        many were left behind.
        """
        loop = asyncio.get_running_loop()
        patience_s = loop.time() + ABORTED_READER_S
        say_at_s = loop.time()
        while len(self):
            now_s = loop.time()
            if present := sum(_is_present(ticket) for ticket in self._open):
                patience_s = now_s + ABORTED_READER_S
            remaining_s = min(until_s, patience_s) - now_s
            if remaining_s <= 0:
                break
            if present and now_s >= say_at_s:
                self._on_waiting(present, until_s - now_s)
                say_at_s = now_s + _HEARTBEAT_S
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), min(remaining_s, _LOOK_S))
            except TimeoutError:
                continue
        return len(self)


def _is_present(ticket: Ticket) -> bool:
    """Whether somebody is going to read on: the client is there and has not had its last word."""
    has_left = ticket.cancel_reason is CancelReason.CLIENT or ticket.caller.is_stopped()
    return not (has_left or ticket.outbox.is_drained or ticket.outbox.is_abandoned)
