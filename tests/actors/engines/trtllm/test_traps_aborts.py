"""Traps of early ends: what waits is dropped without a word; what has no logits yet takes others along."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocols.spec import Output
from protocols.steps import FinishReason
from tests.actors.engines.trtllm.trap_world import (
    begin_neighbour,
    check_untouched,
    config_of,
    open_trapped,
    outcome,
)
from tests.conformance.reader import changed, make_spec
from tests.doubles.trtllm_llms import write_folder

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.usefixtures("double")]


async def test_one_that_waits_in_the_engines_queue_gives_its_place_back(tmp_path: Path) -> None:
    """Also where it is the engine's only news for a while; who runs meanwhile notices nothing."""
    async with open_trapped(config_of(write_folder(tmp_path), max_batch_size=1)) as reader:
        neighbour = begin_neighbour(reader)
        await reader.read_until(lambda: bool(neighbour.tokens))
        waits = [reader.submit(make_spec(max_tokens=4)) for _ in range(3)]
        for each in waits:
            reader.engine.abort(each.engine_id)
        await outcome(reader, *waits)
        assert [each.last_reason for each in waits] == [FinishReason.CANCELLED] * 3
        assert not any(each.tokens for each in waits)
        await check_untouched(reader, neighbour)


async def test_an_early_end_of_a_prompt_that_was_to_be_told_hurts_nobody(tmp_path: Path) -> None:
    """Its process would look for logits that there are not, and fail whoever is there."""
    async with open_trapped(config_of(write_folder(tmp_path))) as reader:
        neighbour = begin_neighbour(reader)
        await reader.read_until(lambda: bool(neighbour.tokens))
        asked = reader.submit(changed(make_spec(max_tokens=30), output=Output(prompt_logprobs=1)))
        reader.engine.abort(asked.engine_id)
        await outcome(reader, asked)
        assert len(asked.tokens) < 30
        await check_untouched(reader, neighbour)
