"""The control routes ``fall_asleep`` and ``wake``, and those of other engines that nothing here can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from protocols.errors import InvalidRequest
from service.control_drain import ladder_of
from service.control_status import status_of
from service.maintenance import SleepCoordinator

if TYPE_CHECKING:
    from service.engine import ActorEngine

DEFAULT_MEMORIES = ("kv_cache",)
# Names that other engines of the framework have a route for.
IMPOSSIBLE = {
    "update_weights": "TensorRT-LLM has no public call for it; start a worker with the new weights",
    "profile": "TensorRT-LLM has no public call for it; trace and the metrics say where time goes",
    "reset_cache": "TensorRT-LLM has no public call for it; a worker that starts anew has an empty cache",
}


class SleepRoutes:
    """Raises InvalidRequest for what does not fit, MaintenanceFailed for what the engine did not do."""

    def __init__(self, worker: ActorEngine, sleeper: SleepCoordinator) -> None:
        self._worker = worker
        self._sleeper = sleeper

    async def sleep(self, body: dict[str, Any]) -> dict[str, Any]:
        """Out of service as by `drain`, then ``memories`` is given back. `wake` takes it again."""
        memories = names_of("memories", body.get("memories", list(DEFAULT_MEMORIES)))
        ladder = ladder_of(body) or self._worker.times.ladder()
        await self._sleeper.sleep(memories, ladder)
        return status_of(self._worker, self._sleeper)

    async def wake(self, _body: dict[str, Any]) -> dict[str, Any]:
        """All memory is taken back, and the worker serves again if it did before."""
        await self._sleeper.wake()
        return status_of(self._worker, self._sleeper)

    def refuse(self, name: str) -> InvalidRequest:
        """What nothing here can do, and why; other engines have even less."""
        return InvalidRequest(name, f"engine {self._worker.engine.name}", IMPOSSIBLE[name])


def names_of(field: str, given: object) -> tuple[str, ...]:
    """Raises InvalidRequest for what is no list of texts. Which names there are is the engine's to say."""
    names = _texts(given)
    if not names:
        raise InvalidRequest(field, given, "a list of kinds of memory, such as kv_cache")
    return names


def _texts(given: object) -> tuple[str, ...]:
    """Of a list that has nothing else; none otherwise."""
    listed = cast("list[object]", given) if isinstance(given, list) else []
    texts = tuple(each for each in listed if isinstance(each, str))
    return texts if len(texts) == len(listed) else ()
