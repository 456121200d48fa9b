"""Which generators are still being read: the count that ``cleanup()`` must bring to zero.

The framework aborts the process when ``cleanup()`` returns while a generator is alive, and it
closes generators whenever its garbage collector gets to it, on any thread.
"""

from __future__ import annotations

import asyncio

from actors.ticket import Ticket
from protocols.telemetry import CancelReason

# A generator whose client has left is dropped, not closed; it may never tell us. Measured: gone
# within 0.1 s; waiting longer than this for it would only delay the exit.
ABORTED_READER_S = 1.0


class Readers:
    """Loop only."""

    def __init__(self) -> None:
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
        return len(self._open)

    async def wait_closed(self, until_s: float) -> int:
        """Wait for every reader that is still there, until a point of the loop's clock.

        Readers whose client has left get one second. Returns how many were left behind.
        """
        loop = asyncio.get_running_loop()
        patience_s = min(until_s, loop.time() + ABORTED_READER_S)
        while self._open:
            present = any(ticket.cancel_reason is not CancelReason.CLIENT for ticket in self._open)
            remaining_s = (until_s if present else patience_s) - loop.time()
            if remaining_s <= 0:
                break
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), remaining_s)
            except TimeoutError:
                continue
        return len(self._open)
