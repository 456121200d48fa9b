"""Control routes of a running worker: who may call them, how many at once, and which code answers.

They are POSTs to ``/engine/control/<name>`` of the framework's system server. Beyond loopback the
body must carry the operator's token; without one they are off there.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from protocols.bounds import Bound
from protocols.errors import InvalidRequest, MaintenanceFailed, Overloaded
from protocols.telemetry import WorkerState
from service.control_body import check_keys
from service.control_drain import DrainRoutes
from service.control_sleep import IMPOSSIBLE, SleepRoutes
from service.control_status import status_of
from service.control_trace import told_stories
from service.log_level import LogLevelRoute
from service.maintenance import SleepCoordinator
from service.memory_occupation import OccupationRoutes
from service.plan import ServingPlan
from service.telemetry.logs import get_logger
from service.translation import to_framework

if TYPE_CHECKING:
    from collections.abc import Generator

    from service.engine import ActorEngine

# What each takes; those that are not here check their own.
_KEYS = {
    "status": (),
    "trace": ("which", "id", "limit"),
    "drain": ("timeout_s",),
    "resume": (),
    "fall_asleep": ("memories", "timeout_s"),
    "wake": (),
}
# Upstream's. Before the one the framework leaves discovery, whatever is answered; after the other it joins.
RELEASE, RESUME = _OCCUPATION = ("release_memory_occupation", "resume_memory_occupation")
# Not for everybody, unlike the harmless one.
# None is called "sleep" or "wake_up": around those the framework leaves and joins discovery by itself.
GUARDED = ("fall_asleep", "wake", *_OCCUPATION, *IMPOSSIBLE, "drain", "resume", "trace", "log_level")
_NAMES = (*GUARDED, "status")
# Calls that are logged for everybody; a change of the level has a line of its own.
_CHANGING = ("drain", "resume", "fall_asleep", "wake", *_OCCUPATION)
# Calls that wait, all together: for a drain, an engine, or a store. Each is a task of the framework's.
MOST_CALLS = 32

_Waiting = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Controls:
    """Answers are plain dictionaries; errors are the framework's."""

    def __init__(self, worker: ActorEngine, plan: ServingPlan) -> None:
        self._worker = worker
        self._plan = plan
        self._calls = 0
        self._log = get_logger("service.controls")
        self._log_level = LogLevelRoute()
        self.sleeper = SleepCoordinator(worker)
        drains, sleeps = DrainRoutes(worker, self.sleeper), SleepRoutes(worker, self.sleeper)
        occupation = OccupationRoutes(worker, self.sleeper)
        self._refuse = sleeps.refuse
        self._waiting: dict[str, _Waiting] = {
            "drain": drains.drain,
            "resume": drains.resume,
            "fall_asleep": sleeps.sleep,
            "wake": sleeps.wake,
            RELEASE: occupation.release,
            RESUME: occupation.resume,
        }

    def names(self) -> set[str]:
        """Routes to register. Beyond loopback and without a token, only the harmless one."""
        if self._plan.is_loopback or self._plan.control_token is not None:
            return set(_NAMES)
        return {"status"}

    async def handle(self, name: str, given: object) -> dict[str, Any]:
        """One call of one route. Raises InvalidArgument for what was not registered, too."""
        is_release = name == RELEASE and name in self.names()
        if is_release:
            self._worker.discovery.taken_out()
        try:
            if name not in self.names():
                raise InvalidRequest("control", name, f"one of {', '.join(sorted(self.names()))}")
            if not isinstance(given, dict):
                raise InvalidRequest("body", type(given).__name__, "a JSON object")
            return await self._answer(name, cast("dict[str, Any]", given))
        except (InvalidRequest, MaintenanceFailed, Overloaded) as exc:
            raise to_framework(exc) from exc
        finally:
            if is_release:
                await self._come_back()

    def status(self) -> dict[str, Any]:
        """Where the worker is."""
        return status_of(self._worker, self.sleeper)

    async def _answer(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if name != "status":
            self._check_token(body)
        if name == "log_level":
            # Every answer has the worker's state, or stories: so a command knows a worker of ours.
            return {"state": self.status()["state"], **self._log_level.handle(body)}
        if name in _KEYS:
            check_keys(body, _KEYS[name])
        self._say_called(name)
        if name == "status":
            return self.status()
        if name == "trace":
            return told_stories(self._worker.recorder, body)
        if name in IMPOSSIBLE:
            raise self._refuse(name)
        with self._place():
            return await self._waiting[name](body)

    async def _come_back(self) -> None:
        """From a release that was refused or taken back: the framework has taken the worker out for it."""
        graph = self._worker.graph
        if graph is not None and graph.drain.state is WorkerState.SERVING:
            await self._worker.discovery.join()

    def _say_called(self, name: str) -> None:
        """Who only asks is of interest to those who debug."""
        say = self._log.info if name in _CHANGING else self._log.debug
        say("control.called", name=name, once_per=name)

    @contextmanager
    def _place(self) -> Generator[None]:
        """For one call that waits. Raises Overloaded when too many do."""
        if self._calls >= MOST_CALLS:
            self._worker.recorder.bound_reached(Bound.CONTROL_CALLS)
            raise Overloaded("control_calls", f"{MOST_CALLS} control calls are waiting")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def _check_token(self, body: dict[str, Any]) -> None:
        wanted = self._plan.control_token
        if wanted is None:
            return
        given = body.get("token")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), wanted.encode()):
            raise InvalidRequest("token", "a wrong or missing token", "the value of DYN_ACTOR_CONTROL_TOKEN")
