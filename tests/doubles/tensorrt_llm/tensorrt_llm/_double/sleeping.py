"""Sleep and wakeup in the engine's process: kinds of memory, by their tags.

Nothing stops requests from arriving: they wait until the call is over, and then meet memory that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensorrt_llm._double.wire import Settings
from tensorrt_llm._torch.virtual_memory import ExecutorMemoryType

if TYPE_CHECKING:
    from tensorrt_llm._double.room import EngineRoom

# Without these nothing can be computed.
_NEEDED = frozenset(each.value for each in ExecutorMemoryType)
_KV_CACHE = ExecutorMemoryType.KV_CACHE.value


class Sleeping:
    """Event loop only."""

    def __init__(self, room: EngineRoom, settings: Settings) -> None:
        self._room = room
        self._modes = settings.restore_modes
        self._world_size = settings.world_size
        self._asleep: set[str] = set()
        # The traps: each closes once.
        self._fails = {"sleep": settings.script.sleep_fails_at, "wakeup": settings.script.wakeup_fails_at}

    @property
    def is_asleep(self) -> bool:
        """Whether any memory is missing."""
        return bool(self._asleep)

    async def sleep(self, tags: Sequence[str]) -> None:
        """Wait for what runs, then give memory up, tag by tag. Raises ValueError, RuntimeError."""
        self._check(tags)
        await self._room.drained()
        try:
            for tag in tags:
                self._maybe_fail("sleep", tag)
                self._asleep.add(tag)
        finally:
            self._room.release()

    async def wakeup(self, tags: Sequence[str]) -> None:
        """Take memory back. What was not restored is empty. Raises ValueError, RuntimeError."""
        self._check(tags)
        await self._room.drained()
        try:
            for tag in tags:
                self._maybe_fail("wakeup", tag)
                if tag in self._asleep and tag == _KV_CACHE and self._mode(tag) == "NONE":
                    await self._room.reload()
                self._asleep.discard(tag)
        finally:
            self._room.release()

    def _check(self, tags: Sequence[str]) -> None:
        if self._modes is None:
            raise ValueError("sleep and wakeup need backend='pytorch' and sleep_config")
        if isinstance(tags, str):
            raise ValueError("the argument is one list of tags")
        for tag in tags:
            ExecutorMemoryType(tag)

    def _mode(self, tag: str) -> str:
        assert self._modes is not None
        return self._modes.get(tag, "NONE" if tag == _KV_CACHE else "PINNED")

    def _maybe_fail(self, method: str, tag: str) -> None:
        if self._fails[method] == tag:
            self._fails[method] = None
            raise RuntimeError(f"{method} failed on ranks {list(range(self._world_size))}")
