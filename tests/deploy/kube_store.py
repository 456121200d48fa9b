"""The objects of a namespace, as an API server keeps them: rising versions, and watches that miss nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy

from tests.deploy.kustomize import Object


class Store:
    """Safe from any thread. Objects are kept by resource (its plural name) and name."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._objects: dict[tuple[str, str], Object] = {}
        # (version, resource, type, object) of all that ever happened.
        self._events: list[tuple[int, str, str, Object]] = []
        self._is_open = True

    def put(self, resource: str, one: Object) -> Object:
        """Create or replace; what it has become, with version, uid and generation."""
        with self._changed:
            key = (resource, one["metadata"]["name"])
            before = self._objects.get(key)
            kept = deepcopy(one)
            generation = 1 if before is None else before["metadata"]["generation"] + 1
            kept["metadata"] |= {"uid": "-".join(key), "generation": generation}
            self._objects[key] = kept
            self._tell(resource, "ADDED" if before is None else "MODIFIED", kept)
            return deepcopy(kept)

    def delete(self, resource: str, name: str) -> None:
        """As if it had never been, for those who watch; nothing when it is not there."""
        with self._changed:
            if (one := self._objects.pop((resource, name), None)) is not None:
                self._tell(resource, "DELETED", one)

    def get(self, resource: str, name: str) -> Object | None:
        """As it is now."""
        with self._changed:
            return deepcopy(self._objects.get((resource, name)))

    def listed(self, resource: str, labels: Mapping[str, str]) -> tuple[int, list[Object]]:
        """The version of the list, and all that have these labels."""
        with self._changed:
            found = [one for (kind, _), one in self._objects.items() if kind == resource]
            return len(self._events), [deepcopy(one) for one in found if _has(one, labels)]

    def watch(self, resource: str, labels: Mapping[str, str], after: int) -> Iterator[Object]:
        """Every event after that version, until the store closes; waits for the next one."""
        while True:
            with self._changed:
                while self._is_open and len(self._events) <= after:
                    self._changed.wait()
                if not self._is_open:
                    return
                after, kind, what, one = self._events[after]
            if kind == resource and _has(one, labels):
                yield {"type": what, "object": one}

    def close(self) -> None:
        """Ends all watches."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _tell(self, resource: str, what: str, one: Object) -> None:
        version = len(self._events) + 1
        one["metadata"]["resourceVersion"] = str(version)
        self._events.append((version, resource, what, deepcopy(one)))
        self._changed.notify_all()


def _has(one: Object, labels: Mapping[str, str]) -> bool:
    has: Mapping[str, str] = one["metadata"].get("labels", {})
    return labels.items() <= has.items()
