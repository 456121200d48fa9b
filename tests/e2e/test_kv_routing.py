"""Two workers behind a router that knows what lies in their caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.engines import Served
from tests.e2e.stacks import Stack
from tests.e2e.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(300)]

TOPICS = ("rivers", "mountains", "bridges", "gardens", "harbours", "markets")
# Of two idle workers the router draws one: so many new prompts in a row have gone to one and the same with
# a probability of 2 to the power of -39.
MOST_TOPICS = 40


def ask(stack: Stack, topic: str) -> tuple[int, int]:
    """Which worker answered, and how much of the prompt it had."""
    question = f"Write about {topic}. " + f"Think of {topic} in the north and of {topic} in the south. " * 8
    status, body = stack.chat(question, temperature=0, max_tokens=2, nvext={"extra_fields": ["worker_id"]})
    assert status == 200, body
    worker: Any = body["nvext"]["worker_id"]
    details: dict[str, int] = body["usage"].get("prompt_tokens_details") or {}
    return worker["decode_worker_id"], details.get("cached_tokens") or 0


def ask_until_both_have_some(stack: Stack) -> dict[str, tuple[int, int]]:
    """All topics, and more of them while only one worker has been asked."""
    first = {topic: ask(stack, topic) for topic in TOPICS}
    for number in range(MOST_TOPICS - len(TOPICS)):
        if len({worker for worker, _ in first.values()}) == 2:
            break
        topic = f"{TOPICS[0]} of the year {1900 + number}"
        first[topic] = ask(stack, topic)
    return first


def wait_until_told(stack: Stack, events: int) -> None:
    """Until the workers have told routers of so many changes in their KV caches."""

    def told() -> float:
        pages = [worker.system.get("/metrics")[1] for worker in stack.workers]
        lines = [line for page in pages for line in page.splitlines() if "kv_events_total" in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if 'published"' in line)

    wait_until(lambda: told() >= events, "no events are published")


def test_an_equal_prompt_goes_to_the_worker_that_has_it(
    served: Served, tiny_model: Path, tmp_path: Path
) -> None:
    """The router hears of every stored block: each second prompt finds its worker, and its blocks there."""
    with served.stack_with_weights(
        tmp_path / "kv",
        tiny_model,
        "--max-num-seqs=4",
        "--publish-kv-events",
        workers=2,
        frontend_options=["--router-mode", "kv"],
    ) as stack:
        first = ask_until_both_have_some(stack)
        wait_until_told(stack, len(first))
        second = {topic: ask(stack, topic) for topic in first}
    assert len({worker for worker, _ in first.values()}) == 2, "new prompts are spread"
    for topic in first:
        assert second[topic][0] == first[topic][0], topic
        assert second[topic][1] > 100, topic
