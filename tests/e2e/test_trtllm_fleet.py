"""Two workers with TensorRT-LLM's double behind a router that knows what lies in their caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.roles import PROGRAM
from tests.e2e.stacks import Stack
from tests.e2e.test_kv_routing import ask, ask_until_both_have_some, wait_until_told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def stack(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With the spelling of upstream's manifests."""
    options = ["--engine", "trtllm", "--model", str(tiny_model), "--max-batch-size", "4"]
    options += ["--publish-events-and-metrics", "--kv-block-size", "32"]
    with Stack(
        tmp_path_factory.mktemp("fleet"),
        options,
        workers=2,
        program=PROGRAM,
        environ={"DOUBLE_STEP_MS": "1"},
        frontend_options=["--router-mode", "kv"],
    ) as opened:
        yield opened


def test_an_equal_prompt_goes_to_the_worker_that_has_it(stack: Stack) -> None:
    """The router hears of blocks a moment after they were stored; from then on it finds them."""
    first = ask_until_both_have_some(stack)
    assert len({worker for worker, _ in first.values()}) == 2, "new prompts are spread"
    wait_until_told(stack, len(first))
    second = {topic: ask(stack, topic) for topic in first}
    for topic in first:
        assert second[topic][0] == first[topic][0], topic
        assert second[topic][1] > 100, topic
