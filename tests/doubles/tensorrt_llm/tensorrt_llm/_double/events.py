"""KV cache events of one rank in the library's shapes, made of what the engine behind the double stores.

That one speaks of full blocks only. The library also stores the last block of a finished request when it is
partly filled, and removes it when a full block takes its place.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from actors.engines.torch.prefix_cache import Root, content_hash
from protocols.steps import EngineStep, KvRemoved, KvStored
from tensorrt_llm._double.iterations import Row
from tensorrt_llm._double.script import Script
from tensorrt_llm._double.wire import Settings

# Partial blocks that are kept; one more, and the oldest is removed.
_MOST_PARTIAL = 4
_PRIORITY = 35


class EventLog:
    """Event loop only. rows: what nobody has fetched; the oldest are dropped when there are too many."""

    def __init__(self, rank: int, settings: Settings, total_blocks: int, window: int) -> None:
        self.rows: deque[Row] = deque(maxlen=settings.event_buffer)
        self._is_on = settings.event_buffer > 0
        self._rank = rank if settings.is_attention_dp else None
        self._script: Script = settings.script
        self._window = window
        self._block_tokens = settings.block_tokens
        self._ids = 0
        self._known: set[int] = set()
        # By hash, with the parent's.
        self._partial: OrderedDict[int, int | None] = OrderedDict()
        if rank == 0:
            self.rows.extend(self._script.dictated_events)
        self._add({"type": "created", "num_blocks_per_cache_level": [total_blocks, 0]})

    def on_step(self, step: EngineStep) -> None:
        """What a step changed."""
        if not self._is_on:
            return
        for event in step.kv_events:
            if isinstance(event, KvStored):
                self._on_stored(event)
            elif isinstance(event, KvRemoved):
                self._known.difference_update(event.block_hashes)
                self._add({"type": "removed", "block_hashes": list(event.block_hashes)})

    def on_end(self, tokens: Sequence[int], cache_salt: str | None) -> None:
        """A sequence is over: ``tokens`` are those whose cache was computed."""
        size = self._block_tokens
        rest = tuple(tokens[len(tokens) - len(tokens) % size :])
        if not self._is_on or not rest or self._script.hides_partial_blocks:
            return
        root, parent = Root(cache_salt, None), None
        for first in range(0, len(tokens) - len(rest), size):
            parent = content_hash(parent, root, tuple(tokens[first : first + size]))
        block_hash = content_hash(parent, root, rest)
        if (parent is not None and parent not in self._known) or block_hash in self._partial:
            return
        self._partial[block_hash] = parent
        self._add(_stored(parent, [_block(block_hash, rest, cache_salt)]))
        if len(self._partial) > _MOST_PARTIAL:
            self._remove_partial(next(iter(self._partial)))

    def forget(self) -> None:
        """The cache has lost its content, and nobody is told."""
        self._known.clear()
        self._partial.clear()

    def _on_stored(self, event: KvStored) -> None:
        size = event.block_tokens
        for block_hash, parent in list(self._partial.items()):
            if parent == event.parent_hash:
                self._remove_partial(block_hash)
        blocks = [
            _block(block_hash, event.token_ids[place * size : (place + 1) * size], event.cache_salt)
            for place, block_hash in enumerate(event.block_hashes)
        ]
        self._known.update(event.block_hashes)
        self._add(_stored(event.parent_hash, blocks))
        if self._script.offloads_blocks:
            self._add(
                {
                    "type": "updated",
                    "block_hash": event.block_hashes[0],
                    "cache_level": _diff(0, 1),
                    "priority": None,
                }
            )

    def _remove_partial(self, block_hash: int) -> None:
        del self._partial[block_hash]
        self._add({"type": "removed", "block_hashes": [block_hash]})

    def _add(self, data: Row) -> None:
        if self._script.has_hash_texts:
            data = _with_texts(data)
        self._add_for(self._window, data)
        if self._script.also_window is not None:
            self._add_for(self._script.also_window, data)

    def _add_for(self, window: int, data: Row) -> None:
        row: Row = {"event_id": self._ids, "data": data, "window_size": window}
        if self._rank is not None:
            row["attention_dp_rank"] = self._rank
        self._ids += 1
        if self._ids == self._script.event_gap_after:
            self._ids += self._script.event_gap
        self.rows.append(row)


def _with_texts(data: Row) -> Row:
    """The same with hashes as another manager of the cache has them."""
    hashes = {"parent_hash", "block_hash"}
    changed: Row = {}
    for key, value in data.items():
        if key in hashes and value is not None:
            changed[key] = f"{value:064x}"
        elif key == "block_hashes" and isinstance(value, list):
            changed[key] = [f"{each:064x}" for each in value]
        elif key == "blocks" and isinstance(value, list):
            changed[key] = [_with_texts(each) for each in value]
        else:
            changed[key] = value
    return changed


def _stored(parent_hash: int | None, blocks: list[Row]) -> Row:
    return {"type": "stored", "parent_hash": parent_hash, "blocks": blocks}


def _block(block_hash: int, tokens: Sequence[int], cache_salt: str | None) -> Row:
    return {
        "type": "stored_block",
        "block_hash": block_hash,
        "tokens": [{"type": "unique_token", "token_id": each, "token_extra_id": 0} for each in tokens],
        "cache_level": 0,
        "priority": _PRIORITY,
        "mm_keys": [],
        "cache_salt": cache_salt,
    }


def _diff(old: int, new: int) -> Row:
    return {"type": "event_diff", "new_value": new, "old_value": old}
