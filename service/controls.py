"""Control routes of a running worker: drain, resume, status, trace, log_level.

They are POSTs to ``/engine/control/<name>`` of the framework's system server. Beyond loopback the
body must carry the operator's token; without one they are off there.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict

from actors.drain import DrainLadder
from protocols.bounds import Bound
from protocols.errors import InvalidRequest, Overloaded
from protocols.telemetry import WorkerState
from service.control_body import check_keys
from service.log_level import LogLevelRoute
from service.plan import ServingPlan
from service.telemetry.logs import get_logger
from service.telemetry.process import rss_bytes
from service.telemetry.stories import MOST_TOLD, Kept
from service.translation import to_framework

if TYPE_CHECKING:
    from collections.abc import Generator

    from service.engine import ActorEngine

# What each takes; the level's route checks its own.
_KEYS = {"drain": ("timeout_s",), "resume": (), "status": (), "trace": ("which", "id", "limit")}
# Not for everybody, unlike the harmless one.
GUARDED = ("drain", "resume", "trace", "log_level")
_NAMES = (*GUARDED, "status")
# Calls that are logged for everybody; a change of the level has a line of its own.
_CHANGING = ("drain", "resume")
# Answers of a drained worker lie ready, and its engine confirms an abort within a step: this is generous.
_SETTLE_S = 2.0
# How often to look meanwhile whether the engine is idle.
_LOOK_S = 0.01
# Calls that wait for something, all together: a drain, or a store. Each is a task of the framework's.
MOST_CALLS = 32


class Controls:
    """Answers are plain dictionaries; errors are the framework's InvalidArgument."""

    def __init__(self, worker: ActorEngine, plan: ServingPlan) -> None:
        self._worker = worker
        self._plan = plan
        # Calls that wait, and the drains among them.
        self._calls = self._drains = 0
        self._log = get_logger("service.controls")
        self._log_level = LogLevelRoute()

    def names(self) -> set[str]:
        """Routes to register. Beyond loopback and without a token, only the harmless one."""
        if self._plan.is_loopback or self._plan.control_token is not None:
            return set(_NAMES)
        return {"status"}

    async def handle(self, name: str, given: object) -> dict[str, Any]:
        """One call of one route. Raises InvalidArgument for what was not registered, too."""
        if name not in self.names():
            raise to_framework(InvalidRequest("control", name, f"one of {', '.join(sorted(self.names()))}"))
        if not isinstance(given, dict):
            raise to_framework(InvalidRequest("body", type(given).__name__, "a JSON object"))
        body = cast("dict[str, Any]", given)
        if name != "status":
            self._check_token(body)
        if name == "log_level":
            return self._change_level(body)
        self._check_keys(name, body)
        self._say_called(name)
        if name == "status":
            return self.status()
        if name == "trace":
            return self._trace(body)
        with self._place():
            return await (self._drain(body) if name == "drain" else self._resume())

    def _check_keys(self, name: str, body: dict[str, Any]) -> None:
        try:
            check_keys(body, _KEYS[name])
        except InvalidRequest as exc:
            raise to_framework(exc) from exc

    def _say_called(self, name: str) -> None:
        """Who only asks is of interest to those who debug."""
        say = self._log.info if name in _CHANGING else self._log.debug
        say("control.called", name=name, once_per=name)

    def status(self) -> dict[str, Any]:
        """Where the worker is. ``safe_to_delete`` is true only when nobody would lose anything.

        A worker that is dying is not: it is on its way out by itself.
        """
        graph, is_dead = self._worker.graph, self._worker.death.is_dead
        # The framework leaves by itself as soon as a signal comes.
        is_listed = self._worker.discovery.is_listed and not self._worker.is_stopping
        process = {"tasks": len(asyncio.all_tasks()), "rss_bytes": rss_bytes()}
        if graph is None:
            state = WorkerState.FAILED if is_dead else WorkerState.STARTING
            return {"state": state.value, "live": 0, "in_flight": 0, "safe_to_delete": False, **process}
        is_drained = graph.drain.state is WorkerState.DRAINED and not is_dead and not is_listed
        return {
            "state": WorkerState.FAILED.value if is_dead else graph.drain.state.value,
            "live": graph.ledger.live_count,
            "waiting": graph.executor.waiting_requests,
            "in_flight": graph.executor.running_sequences,
            "readers": self._worker.open_readers,
            "in_discovery": is_listed,
            "safe_to_delete": is_drained and graph.executor.is_idle and self._worker.open_readers == 0,
            "outcomes": {outcome.value: count for outcome, count in graph.ledger.outcomes.items()},
            "started": graph.ledger.started,
            **process,
        }

    async def _drain(self, body: dict[str, Any]) -> dict[str, Any]:
        """Close admission, leave discovery, wait. The worker stays up; `resume` brings it back.

        A store that is down does not hold a drain up: requests that still come are sent elsewhere.
        """
        ladder = self._ladder(body)
        self._drains += 1
        try:
            report, _ = await asyncio.gather(self._worker.drain(ladder), self._worker.discovery.leave())
            await self._wait_settled(time.monotonic() + _SETTLE_S)
        finally:
            self._drains -= 1
        return {**self.status(), **({} if report is None else asdict(report))}

    async def _wait_settled(self, until_s: float) -> None:
        """Until the answers have been read and the engine has let go of the last request. Monotonic time."""
        await self._worker.wait_read(until_s)
        graph = self._worker.graph
        # Nobody tells when that is.
        while graph is not None and not graph.executor.is_idle and time.monotonic() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    async def _resume(self) -> dict[str, Any]:
        """Open admission and come back into discovery. Refused while anybody's drain is under way."""
        graph = self._worker.graph
        if graph is None or not self._may_resume() or not graph.drain.resume():
            raise self._not_resumed()
        await self._worker.discovery.join()
        # A store takes its time, and the operator may have changed his mind.
        if not self._may_resume() or graph.drain.state is not WorkerState.SERVING:
            raise self._not_resumed()
        return self.status()

    def _may_resume(self) -> bool:
        return not self._drains and not self._worker.is_stopping

    def _not_resumed(self) -> Exception:
        now = "while stopping" if self._worker.is_stopping else "while draining"
        return to_framework(InvalidRequest("resume", now, "a worker that is drained or serving"))

    def _trace(self, body: dict[str, Any]) -> dict[str, Any]:
        """Stories of requests that have ended, by an ``id`` or of those that ``which`` names."""
        recorder = self._worker.recorder
        limit = body.get("limit", MOST_TOLD)
        if type(limit) is not int or not 1 <= limit <= MOST_TOLD:
            raise to_framework(InvalidRequest("limit", limit, f"a number from 1 to {MOST_TOLD}"))
        which, wanted = body.get("which", Kept.LAST), body.get("id")
        if which not in tuple(Kept) or (wanted is not None and "which" in body):
            raise to_framework(InvalidRequest("which", which, f"one of {', '.join(Kept)}, or an id instead"))
        if wanted is not None and not isinstance(wanted, str):
            raise to_framework(InvalidRequest("id", wanted, "a text: the id of an engine, context or trace"))
        stories = recorder.stories
        found = stories.select(Kept(which), limit) if wanted is None else stories.find(wanted, limit)
        return {"worker": recorder.worker, "stories": stories.as_dicts(found)}

    def _change_level(self, body: dict[str, Any]) -> dict[str, Any]:
        """Every answer has the worker's state, or stories: so a command knows a worker of ours."""
        try:
            return {"state": self.status()["state"], **self._log_level.handle(body)}
        except InvalidRequest as exc:
            raise to_framework(exc) from exc

    @contextmanager
    def _place(self) -> Generator[None]:
        """For one call that waits. Raises the framework's 429 when too many do."""
        if self._calls >= MOST_CALLS:
            self._worker.recorder.bound_reached(Bound.CONTROL_CALLS)
            raise to_framework(Overloaded("control_calls", f"{MOST_CALLS} control calls are waiting"))
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def _ladder(self, body: dict[str, Any]) -> DrainLadder | None:
        """The operator's own budget in seconds, if the body has one."""
        timeout_s = body.get("timeout_s")
        if timeout_s is None:
            return None
        if (
            isinstance(timeout_s, bool)
            or not isinstance(timeout_s, int | float)
            or not 0 <= timeout_s <= 86_400
        ):
            raise to_framework(InvalidRequest("timeout_s", timeout_s, "seconds from 0 to 86400"))
        now_s = time.monotonic()
        return DrainLadder(started_s=now_s, move_at_s=now_s + 0.7 * timeout_s, end_at_s=now_s + timeout_s)

    def _check_token(self, body: dict[str, Any]) -> None:
        wanted = self._plan.control_token
        if wanted is None:
            return
        given = body.get("token")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), wanted.encode()):
            raise to_framework(
                InvalidRequest("token", "a wrong or missing token", "the value of DYN_ACTOR_CONTROL_TOKEN")
            )
