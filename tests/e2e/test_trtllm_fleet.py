"""Two workers with TensorRT-LLM's double behind a router that knows what lies in their caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.built_in import built_in_model
from tests.e2e.roles import PROGRAM
from tests.e2e.stacks import Stack
from tests.e2e.test_kv_routing import ask, ask_until_both_have_some
from tests.e2e.tiny_model import write_tiny_model
from tests.e2e.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With the spelling of upstream's manifests."""
    model = write_tiny_model(tmp_path_factory.mktemp("tiny"), built_in_model())
    options = ["--engine", "trtllm", "--model", str(model), "--max-batch-size", "4"]
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
    wait_until(lambda: published(stack) >= len(first), "no events are published")
    second = {topic: ask(stack, topic) for topic in first}
    for topic in first:
        assert second[topic][0] == first[topic][0], topic
        assert second[topic][1] > 100, topic


def published(stack: Stack) -> float:
    """Events of the KV cache that both workers have told routers."""
    pages = [worker.system.get("/metrics")[1] for worker in stack.workers]
    lines = [line for page in pages for line in page.splitlines() if "kv_events_total" in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'published"' in line)
