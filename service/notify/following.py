# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# The framework's endpoint has no type information.
"""What hears of the worker's life in the event loop, for the notifier's sake. Without a manager: nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from protocols.telemetry import Telemetry, WorkerState
from service.notify import complaints
from service.notify.events import DrainProgress, Listed, LoopTurned, StateChanged
from service.notify.notifier import Notifier

# Signs of life for each time-out: one that comes late is followed by another one in time.
_SIGNS = 3
# When the loop stops, its last sign may be nearly as old as the next one would have been.
_LEFT_SHARE = (_SIGNS - 1) / _SIGNS
# How often to look whether frontends find this worker.
_LOOK_S = 0.1


class Overheard:
    """The graph's own listener, and somebody who listens in where the worker's life is told.

    What is told of requests and steps goes to the listener alone, as if nobody stood between.
    """

    def __init__(self, listener: Telemetry, notifier: Notifier) -> None:
        self._listener = listener
        self._notifier = notifier
        self.request_submitted = listener.request_submitted
        self.request_ended = listener.request_ended
        self.request_named_unknown = listener.request_named_unknown
        self.request_cancelled = listener.request_cancelled
        self.abort_told = listener.abort_told
        self.step_done = listener.step_done
        self.drain_ended = listener.drain_ended
        self.bound_reached = listener.bound_reached

    def state_changed(self, state: WorkerState) -> None:
        """The worker moved on in its life."""
        self._notifier.tell(StateChanged(state))
        self._listener.state_changed(state)

    def drain_progress(self, remaining: int, left_s: float) -> None:
        """While draining: so many requests are left, and so many seconds until the last rung."""
        self._notifier.tell(DrainProgress(remaining, left_s))
        self._listener.drain_progress(remaining, left_s)


class Follower:
    """The notifier's ears in the event loop. All methods belong to the loop."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._looking: asyncio.Task[None] | None = None
        # Kept: of a watch that was given up the framework complains in its log when the worker leaves.
        self._watch: Any = None

    def beside(self, listener: Telemetry) -> Telemetry:
        """The listener, overheard. Gives signs of life from now on, if they are wanted."""
        if not self._notifier.is_on:
            return listener
        if self._notifier.watchdog_s is not None:
            self._turn(asyncio.get_running_loop(), self._notifier.watchdog_s / _SIGNS)
        return Overheard(listener, self._notifier)

    def guarded(self, longest_s: float) -> None:
        """The worker waits that long itself for a loop that stands still; so should the manager."""
        watchdog_s = self._notifier.watchdog_s
        if watchdog_s is not None and watchdog_s * _LEFT_SHARE < longest_s:
            complaints.impatient(watchdog_s, watchdog_s * _LEFT_SHARE, longest_s)

    def opened(self, endpoint: Any) -> None:
        """The framework is about to list the endpoint: it says so before it does it, and never again."""
        if self._notifier.is_on:
            self._looking = asyncio.get_running_loop().create_task(
                self._wait_listed(endpoint), name="wait-listed"
            )

    async def _wait_listed(self, endpoint: Any) -> None:
        """Until the store lists this very worker, as a frontend sees it."""
        try:
            own = endpoint.connection_id()
            self._watch = await endpoint.client()
            # Nobody tells when that is.
            while own not in self._watch.instance_ids():  # noqa: ASYNC110 - there is nothing else to wait for
                await asyncio.sleep(_LOOK_S)
        except Exception as exc:
            # Another manager's time-out must not end a worker that serves because we cannot look.
            complaints.discovery_unseen(exc)
        self._notifier.tell(Listed())

    def _turn(self, loop: asyncio.AbstractEventLoop, interval_s: float) -> None:
        """The loop's own timer, so that a loop that stands still gives no sign of life."""
        self._notifier.tell(LoopTurned())
        loop.call_later(interval_s, self._turn, loop, interval_s)
