"""The control routes ``drain`` and ``resume``: out of service and back, by hand."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from actors.drain import DrainLadder
from protocols.errors import InvalidRequest
from protocols.telemetry import WorkerState
from service.control_status import status_of
from service.maintenance import SleepCoordinator
from service.transfers import wait_transferred

if TYPE_CHECKING:
    from service.engine import ActorEngine

# Answers of a drained worker lie ready, and its engine confirms an abort within a step: this is generous.
_SETTLE_S = 2.0
# How often to look meanwhile whether the engine is idle.
_LOOK_S = 0.01
LONGEST_S = 86_400


class DrainRoutes:
    """Raises InvalidRequest for what does not fit."""

    def __init__(self, worker: ActorEngine, sleeper: SleepCoordinator) -> None:
        self._worker = worker
        self._sleeper = sleeper
        self._drains = 0

    async def drain(self, body: dict[str, Any]) -> dict[str, Any]:
        """Close admission, leave discovery, wait. The worker stays up; `resume` brings it back.

        A store that is down does not hold a drain up: requests that still come are sent elsewhere.
        """
        ladder = ladder_of(body) or self._worker.times.ladder()
        self._sleeper.note_drain(is_wished=True)
        self._drains += 1
        try:
            report, _ = await asyncio.gather(self._worker.drain(ladder), self._worker.discovery.stay_out())
            await self._wait_settled(time.monotonic() + _SETTLE_S)
            await wait_transferred(self._worker.engine, partial(self._transferred_by_s, ladder))
        finally:
            self._drains -= 1
        return {**self._status(), **({} if report is None else asdict(report))}

    async def resume(self, _body: dict[str, Any]) -> dict[str, Any]:
        """Open admission and come back into discovery. Refused while anybody's drain is under way."""
        graph = self._worker.graph
        if graph is None or not self._may_resume() or not graph.drain.resume():
            raise self._not_resumed()
        self._sleeper.note_drain(is_wished=False)
        await self._worker.discovery.join()
        # A store takes its time, and the operator may have changed his mind.
        if not self._may_resume() or graph.drain.state is not WorkerState.SERVING:
            raise self._not_resumed()
        return self._status()

    async def _wait_settled(self, until_s: float) -> None:
        """Until the answers have been read and the engine has let go of the last request. Monotonic time."""
        await self._worker.wait_read(until_s)
        graph = self._worker.graph
        # Nobody tells when that is.
        while graph is not None and not graph.executor.is_idle and time.monotonic() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    def _transferred_by_s(self, ladder: DrainLadder) -> float:
        """As long as the drain may take; a worker that stops waits for them by itself."""
        return 0.0 if self._worker.is_stopping else ladder.end_at_s

    def _may_resume(self) -> bool:
        return not self._drains and not self._worker.is_stopping and self._sleeper.is_awake

    def _not_resumed(self) -> InvalidRequest:
        if self._worker.is_stopping:
            return InvalidRequest("resume", "while stopping", "a worker that is drained or serving")
        if not self._sleeper.is_awake:
            now = f"while {self._sleeper.state}"
            return InvalidRequest("resume", now, "a worker that has its memory; wake takes it back")
        return InvalidRequest("resume", "while draining", "a worker that is drained or serving")

    def _status(self) -> dict[str, Any]:
        return status_of(self._worker, self._sleeper)


def ladder_of(body: dict[str, Any], default_s: float | None = None) -> DrainLadder | None:
    """The operator's own budget in seconds, if the body has one. Raises InvalidRequest."""
    timeout_s = body.get("timeout_s", default_s)
    if timeout_s is None:
        return None
    if (
        isinstance(timeout_s, bool)
        or not isinstance(timeout_s, int | float)
        or not 0 <= timeout_s <= LONGEST_S
    ):
        raise InvalidRequest("timeout_s", timeout_s, f"seconds from 0 to {LONGEST_S}")
    now_s = time.monotonic()
    return DrainLadder(started_s=now_s, move_at_s=now_s + 0.7 * timeout_s, end_at_s=now_s + timeout_s)
