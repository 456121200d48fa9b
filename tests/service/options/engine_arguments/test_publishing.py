"""KV events and metrics: what the engine is told to keep and to measure for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from service.options.engine_arguments.worker_flags import EVENT_BUFFER
from tests.service.options.engine_arguments.words import DECODE, TRTLLM, arguments_of, override
from tests.service.options.world import NEW_FRAMEWORK, load, value

if TYPE_CHECKING:
    from service.options import FrameworkFacts


@pytest.mark.parametrize(
    ("words", "env", "facts", "has_events", "has_metrics"),
    [
        ([], {}, None, False, False),
        (["--publish-kv-events"], {}, None, True, True),
        (["--publish-kv-events"], {}, NEW_FRAMEWORK, True, False),
        (["--publish-events-and-metrics"], {}, NEW_FRAMEWORK, True, True),
        ([], {"DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS": "1"}, NEW_FRAMEWORK, True, True),
        (["--publish-metrics"], {}, NEW_FRAMEWORK, False, True),
        (["--publish-kv-events", "--no-publish-metrics"], {}, None, True, False),
        (["--no-publish-events-and-metrics", "--publish-metrics"], {}, NEW_FRAMEWORK, False, True),
    ],
)
def test_events_and_metrics_follow_the_frameworks_switches(
    words: list[str], env: dict[str, str], facts: FrameworkFacts | None, has_events: bool, has_metrics: bool
) -> None:
    """1.4 has one switch for both, 1.6 has two; the engine is told to measure what will be shown."""
    settings = load(*TRTLLM, *words, env=env, facts=facts)
    arguments = settings.engine_arguments
    assert arguments is not None
    runtime = settings.runtime
    assert (runtime.publishes_kv_events, runtime.publishes_engine_metrics) == (has_events, has_metrics)
    assert value(arguments, EVENT_BUFFER) == (100_000 if has_events else None)
    assert bool(value(arguments, "return_perf_metrics")) == has_metrics
    assert bool(value(arguments, "enable_iter_perf_stats")) == (has_events or has_metrics)


def test_a_buffer_of_a_file_is_kept_and_none_is_not_enough() -> None:
    """Without one there are no events."""
    own = arguments_of("--publish-kv-events", override(kv_cache_config={"event_buffer_max_size": 7}))
    assert value(own, EVENT_BUFFER) == 7
    none = load(*TRTLLM, "--publish-kv-events", override(kv_cache_config={"event_buffer_max_size": 0}))
    assert value(none.engine_arguments, EVENT_BUFFER) == 100_000
    assert none.warnings == (
        "--override-engine-args:kv_cache_config.event_buffer_max_size: 100000 for --publish-kv-events wins "
        "over no buffer",
    )


def test_a_decode_worker_keeps_no_events() -> None:
    """Routers look for blocks where prompts are computed; its metrics are another matter."""
    settings = load(*TRTLLM, *DECODE, "--publish-kv-events")
    assert settings.warnings == (
        "--publish-kv-events: of a decode worker no KV blocks are told, routers need none",
    )
    assert not value(settings.engine_arguments, EVENT_BUFFER)
    assert value(settings.engine_arguments, "enable_iter_perf_stats") is True
