"""Whatever clients, the engine and the operator do: counters only rise, and gauges come back to rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from protocols.telemetry import NullTelemetry, Outcome
from service.telemetry.recorder import Recorder, RecorderSettings, build_recorder
from tests.actors import world
from tests.actors.playing import Player
from tests.actors.stories import Story, long_story, stories
from tests.actors.world import SpanningTelemetry
from tests.service.telemetry.readings import samples_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.actors.stories import Action

IS_FUZZING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
LONG_STORIES = range(160) if IS_FUZZING else range(8)

_RISING = ("_total", "_count", "_sum", "_bucket")
# What they tell outlives what it tells of: the last of something, or a share of all.
_LAST = ("trtllm_iteration_latency_seconds", "trtllm_kv_cache_hit_rate", "loop_lag_last_seconds")
# Not figures: what the engine said about itself, and where the worker is in its life.
_FACTS = ("trtllm_model_config_info", "trtllm_kv_cache_config_info", "mailbox_capacity", "worker_state")


class Listener(SpanningTelemetry):
    """The recorder of the service, beside the listener that the judge of stories asks."""

    def __init__(self) -> None:
        super().__init__()
        settings = RecorderSettings(engine="torch", framework_version="1.4.2", version="1", environ={})
        self.recorder: Recorder = build_recorder(settings)


def _telling_both(name: str) -> Callable[..., Any]:
    def tell(self: Listener, *args: Any) -> Any:
        getattr(self.recorder, name)(*args)
        return getattr(SpanningTelemetry, name)(self, *args)

    return tell


# Whatever a graph may tell.
for told in (name for name in vars(NullTelemetry) if not name.startswith("_")):
    setattr(Listener, told, _telling_both(told))


class Scraping(Player):
    """Plays a story, and scrapes after every move of it."""

    def play(self) -> None:
        """Start to end, and a last scrape when the graph is closed."""
        self.pages: list[dict[str, float]] = []
        with patch.object(world, "SpanningTelemetry", Listener):
            super().play()
        if self.pages:
            self.listener.recorder.graph_closed()
            self._check_rest(self._scrape())

    async def _act(self, action: Action) -> None:
        if not self.pages:
            self.listener.recorder.watch(self.world.graph)
            self.pages.append(samples_of(self.listener.recorder.registry))
        await super()._act(action)

    async def _turn(self, turns: int | None) -> None:
        await super()._turn(turns)
        self._check_books(self._scrape())

    async def _come_to_rest(self) -> None:
        await super()._come_to_rest()
        if self.pages:
            self._check_rest(self._scrape())

    @property
    def listener(self) -> Listener:
        """Of the graph that is played on."""
        assert isinstance(self.world.listener, Listener)
        return self.world.listener

    def _scrape(self) -> dict[str, float]:
        """Nothing is born or gone since the scrape before, and no counter is lower."""
        page, before = samples_of(self.listener.recorder.registry), self.pages[-1]
        assert page.keys() == before.keys()
        assert [name for name in page if is_rising(name) and page[name] < before[name]] == []
        self.pages.append(page)
        return page

    def _check_books(self, page: dict[str, float]) -> None:
        """The metrics say what the graph's own books say; health probes are in none of it."""
        ledger, listener = self.world.graph.ledger, self.listener
        outcomes = by_label(page, "requests_total")
        assert outcomes == {outcome.value: ledger.outcomes[outcome] for outcome in Outcome}
        assert page["request_seconds_count"] == sum(outcomes.values())
        assert page["requests_live"] == ledger.live_count
        assert page["requests_in_flight"] == self.world.graph.executor.running_requests
        assert sum(by_label(page, "rejected_total").values()) == outcomes["refused"]
        assert sum(by_label(page, "cancellations_total").values()) == listener.cancellations.total()
        assert sum(by_label(page, "failed_total").values()) == outcomes["failed"]
        assert page['tokens_total{direction="output"}'] == listener.tokens
        assert page["engine_steps_total"] == listener.steps
        assert sum(by_label(page, "worker_state").values()) == 1

    def _check_rest(self, page: dict[str, float]) -> None:
        """All gauges are what they were before the first request, whatever became of the graph."""
        first = self.pages[0]
        assert {name: page[name] for name in page if is_gauge(name) and page[name] != first[name]} == {}
        aborts = by_label(page, "aborts_total")
        if self.census.doom is None:
            assert aborts["asked"] == aborts["confirmed"]


def is_rising(name: str) -> bool:
    """Whether a series is a counter, or part of a histogram."""
    return name.partition("{")[0].endswith(_RISING)


def is_gauge(name: str) -> bool:
    """Whether a series tells how much there is now."""
    return not is_rising(name) and not name.startswith((*_LAST, *_FACTS))


def by_label(page: dict[str, float], name: str) -> dict[str, float]:
    """The series of one name by what stands in their labels."""
    found = {series: value for series, value in page.items() if series.partition("{")[0] == name}
    return {series.partition('="')[2].rstrip('"}'): value for series, value in found.items()}


@pytest.mark.timeout(0 if IS_FUZZING else 120)
@given(story=stories())
@settings(max_examples=5_000 if IS_FUZZING else 250)
def test_any_short_story_leaves_nothing_in_a_gauge(story: Story) -> None:
    """Cancels, stalls, deadlines, drains, failures, deaths: searched and shrunk by Hypothesis."""
    Scraping(story).play()


@pytest.mark.parametrize("seed", LONG_STORIES)
def test_any_long_story_leaves_nothing_in_a_gauge(seed: int) -> None:
    """Hundreds of moves on one graph, drained and resumed between them."""
    Scraping(long_story(seed, moves=300)).play()
