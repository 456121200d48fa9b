"""What the engine tells beside its answers: statistics, KV events, metrics. Threads ask for the first two.

None of it is needed to answer. So an engine that does not tell, or a thread that ends, is told in the log and
missed in the figures, and requests go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from actors.engines.trtllm.answers.collecting import CacheState, StepCollector
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.figures.kv_events import KvEventReader
from actors.engines.trtllm.figures.metrics import BUCKETS, EngineMetrics, collector_of_process
from actors.engines.trtllm.figures.polling import Hearing, PollThread
from actors.engines.trtllm.figures.stats import EngineState, StatsReader
from actors.engines.trtllm.loading import Loaded
from protocols.errors import EngineStartError
from protocols.steps import KvCleared, KvEvent

# How long the engine waits for news before it says that there is none, in seconds.
_WAIT_S = 1.0

# In the log: level, and what has become of the asking.
_WORDS: Mapping[Hearing, tuple[int, str]] = {
    Hearing.SILENT: (logging.ERROR, "TensorRT-LLM's %s are not heard (%s); they are asked for now and then"),
    Hearing.BACK: (logging.WARNING, "TensorRT-LLM's %s are heard again%s"),
    Hearing.DEAD: (logging.ERROR, "TensorRT-LLM's %s are no longer asked for (%s)"),
}

_log = logging.getLogger(__name__)


class Telling:
    """Event loop only, but for the two polls."""

    def __init__(self, loaded: Loaded, config: TrtllmConfig, steps: StepCollector) -> None:
        """Raises EngineStartError for buckets of metrics that cannot be."""
        self._llm = loaded.llm
        self._steps = steps
        self._stats = StatsReader(config.ranks)
        info = loaded.info
        self._events = KvEventReader(
            info.block_tokens or config.block_tokens, config.ranks, info.most_known_blocks
        )
        self._metrics = _metrics(loaded, config)
        self._state = EngineState()
        self._ranks = config.ranks
        self._has_events = config.publishes_kv_events
        self._threads: list[PollThread[Any]] = []
        if config.has_statistics:
            say = partial(_say, "statistics")
            self._threads.append(PollThread("trtllm-stats", self._poll_stats, self._tell_state, say))
        if self._has_events:
            hear = self._events_hearing
            self._threads.append(PollThread("trtllm-events", self._poll_events, steps.tell_cache, hear))

    @property
    def iterations(self) -> int:
        """A sign of life: so many the engine has told of."""
        return self._state.iterations_seen

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    def finished(self, result: Any) -> None:
        """A request has ended; with the library's result."""
        if self._metrics is not None:
            self._metrics.finished(result)

    def cache_lost(self) -> None:
        """The engine's memory was given back, or may have been: routers must not count on it."""
        if self._has_events:
            self._events.cleared()

    async def stop(self) -> None:
        """Ask no more. A poll that is under way comes back by itself, or ends with the process."""
        await asyncio.gather(*(thread.stop(within_s=2 * _WAIT_S) for thread in self._threads))

    def _poll_stats(self) -> EngineState | None:
        """The thread of the statistics."""
        rows = cast("list[Any]", self._llm.get_stats(timeout=_WAIT_S))
        if self._metrics is not None:
            self._metrics.iteration(rows)
        return self._stats.read(rows)

    def _poll_events(self) -> list[KvEvent]:
        """The thread of the events."""
        return self._events.read(cast("list[Any]", self._llm.get_kv_cache_events(timeout=_WAIT_S)))

    def _tell_state(self, state: EngineState) -> None:
        self._state = state
        ranks = state.ranks if self._ranks > 1 else ()
        self._steps.tell_state(CacheState(used=state.used_blocks, ranks=ranks))

    def _events_hearing(self, hearing: Hearing, cause: BaseException | None) -> None:
        """What routers know gets wrong while nothing is heard: they had better know nothing."""
        _say("KV events", hearing, cause)
        if hearing is not Hearing.BACK:
            self._events.forgotten()
            self._steps.tell_cache([KvCleared(rank=rank) for rank in range(self._ranks)])


def _say(what: str, hearing: Hearing, cause: BaseException | None) -> None:
    level, text = _WORDS[hearing]
    _log.log(level, text, what, "" if cause is None else type(cause).__name__)


def _metrics(loaded: Loaded, config: TrtllmConfig) -> EngineMetrics | None:
    if config.metrics_model is None:
        return None
    buckets = cast(
        "Mapping[str, list[float] | None]",
        {name: config.part("prometheus_metrics_config", name) for name in BUCKETS},
    )
    try:
        collector = collector_of_process(loaded.library.MetricsCollector, config.metrics_model, buckets)
    except ValueError as exc:
        raise EngineStartError(f"TensorRT-LLM's metrics: {exc}.", "See prometheus_metrics_config.") from exc
    return EngineMetrics(collector, config.ranks)
