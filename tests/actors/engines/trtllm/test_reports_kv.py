"""The field report about KV events (S14): two ranks of TensorRT-LLM's double tell, routers may believe it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from protocols.steps import KvEvent, KvLost, KvMalformed, KvRemoved, KvStored
from tests.actors.engines.trtllm.kv_telling import Telling, block
from tests.actors.engines.trtllm.report_world import PATIENCE_S
from tests.actors.engines.trtllm.trap_world import config_of, open_trapped
from tests.doubles.trtllm_llms import write_folder
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

BLOCK = 4
# Beyond the range of signed numbers of 64 bits, and below zero: the same block by two names.
WIDE, FOLDED = 2**64 - 5, -5


def dictated() -> list[dict[str, Any]]:
    """Word for word as it was reported, and then what makes no sense."""
    first, second = Telling(rank=0), Telling(rank=1)
    rows = [
        first.stored(11, 12, block(13, size=2)),
        second.stored(13),
        second.removed(13),
        first.removed(13, 12),
        first.stored(WIDE),
        second.stored(block(FOLDED)),
    ]
    first.lose(4)
    return [
        *rows,
        first.stored(20),
        {"event_id": None, "data": {}, "attention_dp_rank": 0},
        second.stored(block(21, size=5), parent=None),
        second.stored(22),
    ]


async def test_what_routers_hear(tmp_path: Path) -> None:
    """Full blocks of each rank, no removal of what was never told, the gap where it was, and life goes on."""
    config = config_of(
        write_folder(tmp_path),
        {"publishes_kv_events": True},
        tensor_parallel_size=2,
        enable_attention_dp=True,
        kv_cache_config={"event_buffer_max_size": 100, "tokens_per_block": BLOCK},
    )
    script = {"dictated_events": dictated()}
    events: list[KvEvent] = []
    with double_on_path():
        async with open_trapped(config, script, {"DOUBLE_GPUS": "2"}) as reader:
            with anyio.fail_after(PATIENCE_S):
                while sum(event.count for event in events if isinstance(event, KvMalformed)) < 2:
                    events += (await reader.engine.next_step()).kv_events

    def told(kind: type[Any], rank: int) -> list[Any]:
        return [event for event in events if isinstance(event, kind) and event.rank == rank]

    def names(kind: type[Any], rank: int) -> list[int]:
        return [name for event in told(kind, rank) for name in event.block_hashes]

    assert names(KvStored, 0) == [11, 12, WIDE, 20]
    assert names(KvStored, 1) == [13, WIDE, 22]
    assert names(KvRemoved, 0) == [12]
    assert names(KvRemoved, 1) == [13]
    assert [event.count for event in told(KvLost, 0)] == [4]
    assert told(KvLost, 1) == []
    assert sum(event.count for rank in (0, 1) for event in told(KvMalformed, rank)) == 2
    assert all(event.block_tokens == BLOCK for rank in (0, 1) for event in told(KvStored, rank))
