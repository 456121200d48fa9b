"""The two routes by which upstream's workers give memory back, with its bodies, words and answers.

Whatever goes wrong is told in an answer of status "error", with HTTP 200. Unlike there, requests that are
still live when ``timeout_s`` is over are moved or interrupted, as a drain does it, and nothing of a body is
overlooked: neither a kind of memory that is unknown, nor a resume of less than what is asleep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocols.errors import InvalidRequest, MaintenanceFailed
from protocols.telemetry import WorkerState
from service.control_body import check_keys
from service.control_drain import ladder_of
from service.control_sleep import names_of
from service.maintenance import Rest, SleepCoordinator
from service.options.nearest import nearest

if TYPE_CHECKING:
    from service.engine import ActorEngine

_TIMEOUT_S = 30.0
# Its own words for kinds of memory; any of the engine's are understood too.
_WORDS = {"weights": ("model_weights", "draft_model_weights")}
_ALL = ("kv_cache", "weights")
_RESUME_FIRST = "resume_memory_occupation required before retrying release"


class OccupationRoutes:
    """Raises nothing of ours."""

    def __init__(self, worker: ActorEngine, sleeper: SleepCoordinator) -> None:
        self._worker = worker
        self._sleeper = sleeper

    async def release(self, body: dict[str, Any]) -> dict[str, Any]:
        """``tags`` (all) and ``timeout_s`` (30). A release that fails is taken back at once."""
        if self._sleeper.state is Rest.HALF_ASLEEP:
            return _error(_RESUME_FIRST)
        try:
            check_keys(body, ("tags", "timeout_s"))
            memories = self._memories(body)
            ladder = ladder_of(body, _TIMEOUT_S) or self._worker.times.ladder()
            is_new = not set(self._sleeper.asleep).issuperset(memories)
            await self._sleeper.sleep(memories, ladder)
        except (InvalidRequest, MaintenanceFailed) as exc:
            return _error(await self._taken_back(str(exc)))
        return _ok("Memory released" if is_new else "Memory already released")

    async def resume(self, body: dict[str, Any]) -> dict[str, Any]:
        """``tags`` may name more than what is asleep, not less: a worker serves with all of its memory."""
        was_awake = self._sleeper.is_awake
        try:
            check_keys(body, ("tags",))
            if body.get("tags"):
                self._check_whole(self._memories(body))
            await self._sleeper.wake()
        except (InvalidRequest, MaintenanceFailed) as exc:
            return _error(str(exc))
        message = "Memory already resumed" if was_awake else "Memory resumed"
        graph = self._worker.graph
        if graph is None or graph.drain.state is not WorkerState.SERVING:
            # Upon anything but an error the framework would list a worker that serves nobody.
            return _error(f"{message}, but the worker was drained by hand: resume brings it back")
        return _ok(message)

    def _memories(self, body: dict[str, Any]) -> tuple[str, ...]:
        """What the tags mean to the engine. An engine without any is refused by name later."""
        tags = names_of("tags", body.get("tags") or list(_ALL))
        maintenance = self._worker.engine.maintenance
        known = tags if maintenance is None else (*_WORDS, *maintenance.memories)
        for tag in tags:
            if tag not in known:
                raise InvalidRequest(
                    "tags", tag, f"one of {', '.join(known)}; the nearest is {nearest(tag, known)}"
                )
        return tuple(memory for tag in tags for memory in _WORDS.get(tag, (tag,)))

    def _check_whole(self, memories: tuple[str, ...]) -> None:
        """A recovery brings back what there is, whatever is named."""
        left = sorted(set(self._sleeper.asleep) - set(memories))
        if left and self._sleeper.state is Rest.ASLEEP:
            raise InvalidRequest("tags", list(memories), f"no tags, or with {', '.join(left)} among them")

    async def _taken_back(self, problem: str) -> str:
        """Serving again after a release that failed. What came of it, after what went wrong."""
        if self._sleeper.state is not Rest.HALF_ASLEEP:
            return problem
        try:
            await self._sleeper.wake()
        except (InvalidRequest, MaintenanceFailed) as exc:
            return f"{problem}; rollback resume failed: {exc}"
        return problem


def _ok(message: str) -> dict[str, Any]:
    return {"status": "ok", "message": message}


def _error(message: str) -> dict[str, Any]:
    return {"status": "error", "message": message}
