"""A graph with nothing in it, for whoever looks at gauges alone."""

from __future__ import annotations

from collections.abc import Sequence

from actors.mailbox import Mailbox
from protocols.engine import EngineInfo


class _Nothing:
    live_count = running_requests = running_sequences = waiting_requests = 0


class RestingGraph:
    """Of an engine with a KV cache of eight blocks."""

    ledger = executor = _Nothing()
    info = EngineInfo(
        model="m", context_length=9, max_num_seqs=1, vocab_size=9, block_tokens=4, total_blocks=8
    )

    def mailboxes(self) -> Sequence[Mailbox]:
        """None."""
        return []
