"""Telling one rank's KV cache events to the framework, and catching up when that did not work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol, assert_never

from protocols.steps import KvCleared, KvEvent, KvLost, KvMalformed, KvRemoved, KvStored
from service.kv_index import KvIndex
from service.telemetry.logs import get_logger

# After a publisher has raised it gets this long.
RETRY_S = 5.0
# Removals that could not be told. A router that never hears of one misses
# a better worker once, no more.
MOST_GONE = 1 << 16
# Hashes in one message: far below what the event plane carries.
_MOST_HASHES = 1 << 12
_SIGN_BIT = 1 << 63


class Publisher(Protocol):
    """The framework's; its calls do not block."""

    def publish_batch(self, events: Any, /) -> None:
        """A list of messages, in order. Hashes are signed 64-bit numbers. Raises for what it cannot read."""
        ...


class RankPublisher:
    """One rank: its blocks, the framework's publisher once there is one, and whether that knows them all.

    count: is given one of `service.telemetry.metrics.KV_RESULTS` and how many events.
    clock: monotonic seconds. number: the rank. lost: events of it that never came.
    """

    def __init__(
        self,
        index: KvIndex,
        count: Callable[[str, int], None],
        clock: Callable[[], float],
        number: int = 0,
    ) -> None:
        self._number = number
        self.lost = 0
        self._index = index
        self._count = count
        self._clock = clock
        self._publisher: Publisher | None = None
        self._fresh: list[dict[str, Any]] = []
        # Behind: everything has to be told again; and that these (signed hashes) are no longer there.
        self._gone: dict[int, None] = {}
        self._retry_s = 0.0
        self.is_behind = True

    def opened(self, publisher: Publisher) -> None:
        """The framework can be told now; it knows nothing yet."""
        self._publisher = publisher
        self.publish()

    def forgotten(self) -> None:
        """Routers have dropped what they knew of this worker: tell everything again."""
        self.is_behind = True
        self._retry_s = 0.0
        self._fresh = []
        self._gone.clear()
        self.publish()

    def note(self, event: KvEvent) -> None:
        """A change, to be told with the next `publish`. What cannot be true is counted and left out."""
        match event:
            case KvRemoved():
                self._add_removed(self._index.remove(event))
            case KvStored():
                self._note_stored(event)
            case KvCleared():
                self._add_removed(self._index.clear())
            case KvLost(count=count):
                self._note_loss(count)
            case KvMalformed(count=count):
                self._count("malformed", count)
            case _:
                assert_never(event)

    def _note_stored(self, event: KvStored) -> None:
        """More blocks than there can be are known when removals never came: begin anew, and count it."""
        if not self._index.has_room(event) and self._index.is_sound(event):
            self._count("malformed", 1)
            self._add_removed(self._index.clear())
        if self._index.store(event):
            self._add(_stored_message(event))
        else:
            self._count("malformed", 1)

    def _add_removed(self, known: tuple[int, ...]) -> None:
        for first in range(0, len(known), _MOST_HASHES):
            self._add(_removed_message(map(_signed, known[first : first + _MOST_HASHES])))

    def _add(self, message: dict[str, Any]) -> None:
        if self._publisher is not None:
            self._fresh.append(message)

    def _note_loss(self, count: int) -> None:
        """Nobody can tell what it was. Routers miss a block, or look for one in vain, once each."""
        self.lost += count
        self._count("lost", count)
        get_logger("service.kv").warning(
            "kv.gap", rank=self._number, events=count, lost=self.lost, once_per=f"gap of {self._number}"
        )

    def publish(self) -> None:
        """Tell what is new, in one call; or, when behind and it is time, all there is."""
        publisher = self._publisher
        if publisher is None:
            return
        if self.is_behind:
            self._fold()
            if self._clock() < self._retry_s:
                return
            self._fresh = self._everything()
        if self._fresh and not self._is_taken(publisher):
            return
        self.is_behind = False
        self._fresh = []
        self._gone.clear()

    def _is_taken(self, publisher: Publisher) -> bool:
        try:
            publisher.publish_batch(self._fresh)
        except Exception as exc:
            self._count("failed", len(self._fresh))
            get_logger("service.kv").warning(
                "kv.publish_failed", error=type(exc).__name__, once_per="publish"
            )
            self.is_behind = True
            self._retry_s = self._clock() + RETRY_S
            self._fold()
            return False
        self._count("published", len(self._fresh))
        return True

    def _everything(self) -> list[dict[str, Any]]:
        gone = [_removed_message(self._gone)] if self._gone else []
        return gone + [_stored_message(piece) for piece in self._index.chains()]

    def _fold(self) -> None:
        """New blocks are part of the whole that will be told; only removals must be remembered."""
        for message in self._fresh:
            for block_hash in message["block_hashes"]:
                self._gone.pop(block_hash, None)
                if message["type"] == "removed":
                    self._gone[block_hash] = None
        self._fresh = []
        too_many = len(self._gone) - MOST_GONE
        if too_many > 0:
            for block_hash in list(islice(self._gone, too_many)):
                del self._gone[block_hash]
            self._count("forgotten", too_many)


def _signed(block_hash: int) -> int:
    """The same 64 bits as the framework reads them."""
    return block_hash - 2 * _SIGN_BIT if block_hash >= _SIGN_BIT else block_hash


def _stored_message(event: KvStored) -> dict[str, Any]:
    message: dict[str, Any] = {
        "type": "stored",
        "token_ids": list(event.token_ids),
        "num_block_tokens": [event.block_tokens] * len(event.block_hashes),
        "block_hashes": [_signed(each) for each in event.block_hashes],
    }
    if event.parent_hash is not None:
        message["parent_hash"] = _signed(event.parent_hash)
    if event.cache_salt is not None:
        message["cache_salt"] = event.cache_salt
    if event.adapter is not None:
        message["lora_name"] = event.adapter
    return message


def _removed_message(signed_hashes: Iterable[int]) -> dict[str, Any]:
    return {"type": "removed", "block_hashes": list(signed_hashes)}
