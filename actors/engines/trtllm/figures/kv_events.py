"""What TensorRT-LLM tells of its KV cache, as routers may hear it.

Routers name a block by its tokens, so they are told of full blocks of text only, and of a chain only as far
as all of it is such. Left out, with everything behind them in their chain, are

* the last block of a prompt while it is not full;
* blocks with multimodal keys or extra token ids: their placeholders are the same for every image, and a
  router would send a prompt about one image to the worker that has another;
* blocks without a hash.

Of the other kinds of events ``created`` tells the attention window. Where a model has several windows, each
tells of the same prompts, and only the largest remembers all of a prompt; the others are left out.
``updated`` (another memory level, another priority) changes nothing: a block in the host's memory is still
found and costs a copy, no computation; when it falls out of the last level, a ``removed`` comes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from actors.engines.trtllm.figures.kv_rows import (
    KvRow,
    NonsenseRow,
    StoredBlock,
    WideHash,
    adapter_of,
    kv_row,
    parent_of,
    removed_names,
    stored_blocks,
)
from protocols.steps import KvCleared, KvEvent, KvLost, KvMalformed, KvRemoved, KvStored

_log = logging.getLogger(__name__)

WIDE_HASHES = (
    "the engine names its blocks by hashes that are no 64-bit numbers; "
    "set kv_cache_config.kv_cache_event_hash_algo to v2_sha256_64, or use_kv_cache_manager_v2 to false there"
)


class KvEventReader:
    """One for each LLM; belongs to the thread that polls, except where said.

    block_tokens: tokens of a full block. ranks: attention-DP ranks. most_blocks: of each rank, that may be
    known at once. Blocks whose removal never came count for ever; a rank that comes to that is cleared, and
    goes on with what is stored from then on.
    """

    def __init__(self, block_tokens: int, ranks: int = 1, most_blocks: int = 1 << 20) -> None:
        self._ranks = [_RankReader(number, block_tokens, most_blocks) for number in range(ranks)]
        self._is_cleared = False
        self._is_forgotten = False
        self._has_complained = False

    def forgotten(self) -> None:
        """Any thread: routers no longer know what they were told. The next `read` begins anew."""
        self._is_forgotten = True

    def cleared(self) -> None:
        """Any thread: the engine has lost its cache without a word. Told at the end of the next `read`."""
        self._is_cleared = True

    def read(self, rows: Iterable[object]) -> list[KvEvent]:
        """Events in the order of the rows, then what made no sense, by rank; never raises.

        A row that names no rank of ours counts for rank 0.
        """
        events: list[KvEvent] = []
        nonsense = Counter[int]()
        if self._is_forgotten:
            self._is_forgotten = False
            self._clear(events)
        for row in rows:
            self._take(row, events, nonsense)
        if self._is_cleared:
            self._is_cleared = False
            self._clear(events)
        events += [KvMalformed(count=count, rank=rank) for rank, count in sorted(nonsense.items())]
        return events

    def _take(self, row: object, events: list[KvEvent], nonsense: Counter[int]) -> None:
        rank = 0
        try:
            checked = kv_row(row)
            if checked.rank >= len(self._ranks):
                raise NonsenseRow("a rank that does not exist")
            rank = checked.rank
            self._ranks[rank].take(checked, events)
        except NonsenseRow as exc:
            nonsense[rank] += 1
            self._complain(exc)

    def _clear(self, events: list[KvEvent]) -> None:
        for each in self._ranks:
            each.clear(events)

    def _complain(self, exc: NonsenseRow) -> None:
        """Once: all hashes of an engine are of one kind. The rest is counted by whoever gets the events."""
        if isinstance(exc, WideHash) and not self._has_complained:
            self._has_complained = True
            _log.warning("KV events cannot be told: %s", WIDE_HASHES)


class _RankReader:
    """One rank: which event comes next, and what routers were told of."""

    def __init__(self, number: int, block_tokens: int, most_blocks: int) -> None:
        self._number = number
        self._block_tokens = block_tokens
        self._most_blocks = most_blocks
        self._next_id: int | None = None
        self._window: int | None = None
        self._told: set[int] = set()

    def take(self, row: KvRow, events: list[KvEvent]) -> None:
        """Add what follows from one row. Raises NonsenseRow; what was added before it is true."""
        self._follow_ids(row, events)
        self._follow_window(row, events)
        if row.window is not None and row.window != self._window:
            return
        match row.kind:
            case "stored":
                self._store(row, events)
            case "removed":
                self._remove(row, events)
            case "created" | "updated":
                return
            case _:
                raise NonsenseRow("an event of a kind that is not known")

    def clear(self, events: list[KvEvent]) -> None:
        """Nothing lies there any more."""
        self._told.clear()
        events.append(KvCleared(rank=self._number))

    def _follow_ids(self, row: KvRow, events: list[KvEvent]) -> None:
        """Ids that are left out are events that the engine's buffer had no room for."""
        expected = row.event_id if self._next_id is None else self._next_id
        if row.event_id > expected:
            events.append(KvLost(count=row.event_id - expected, rank=self._number))
        elif row.event_id < expected:
            if row.kind != "created":
                # Counted as lost when it was passed over, or told before.
                raise NonsenseRow("an event that comes late, or twice")
            self._window = None
            self.clear(events)
        self._next_id = row.event_id + 1

    def _follow_window(self, row: KvRow, events: list[KvEvent]) -> None:
        """What was told of a smaller window, before anybody knew of a larger one, was too much."""
        if row.window is None or (self._window is not None and row.window <= self._window):
            return
        self._window = row.window
        if self._told:
            self.clear(events)

    def _store(self, row: KvRow, events: list[KvEvent]) -> None:
        blocks = stored_blocks(row.data, self._block_tokens)
        parent = parent_of(row.data)
        adapter = adapter_of(row.data)
        piece = self._piece(parent, blocks)
        if not piece:
            return
        names = tuple(name for name, _ in piece)
        if len(self._told) + sum(name not in self._told for name in names) > self._most_blocks:
            # Removals were lost, or never told: from here on the rank is heard as if it were new.
            self.clear(events)
            raise NonsenseRow("more blocks than can be there")
        self._told.update(names)
        events.append(
            KvStored(
                block_hashes=names,
                token_ids=tuple(token for _, block in piece for token in block.token_ids),
                block_tokens=self._block_tokens,
                parent_hash=parent,
                cache_salt=piece[0][1].cache_salt,
                adapter=adapter,
                rank=self._number,
            )
        )

    def _piece(self, parent: int | None, blocks: list[StoredBlock]) -> list[tuple[int, StoredBlock]]:
        """The beginning of the chain that routers may hear of. Raises NonsenseRow for what is no chain."""
        if parent is not None and parent not in self._told:
            return []
        piece: list[tuple[int, StoredBlock]] = []
        names = {parent}
        for block in blocks:
            is_full = len(block.token_ids) == self._block_tokens
            if block.name is None or not is_full or not block.is_text:
                break
            if block.name in names:
                raise NonsenseRow("a block that comes after itself")
            if block.cache_salt != blocks[0].cache_salt:
                raise NonsenseRow("a chain with two salts")
            names.add(block.name)
            piece.append((block.name, block))
        return piece

    def _remove(self, row: KvRow, events: list[KvEvent]) -> None:
        """Of what they were not told of, routers must not hear that it is gone."""
        known = tuple(name for name in dict.fromkeys(removed_names(row.data)) if name in self._told)
        if known:
            self._told.difference_update(known)
            events.append(KvRemoved(block_hashes=known, rank=self._number))
