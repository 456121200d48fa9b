"""TensorRT-LLM as the graph sees it: a driver whose engine is a library with processes of its own.

It has no pause: whoever reads slowly has reserved room for all that it may be told. The library's iterators,
one a request, are read by one task each; whatever they bring in one turn of the loop is one step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from actors.engines.trtllm.answers.collecting import StepCollector
from actors.engines.trtllm.answers.following import Reading
from actors.engines.trtllm.answers.timing import timing_of
from actors.engines.trtllm.capabilities import capabilities_of
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.figures.telling import Telling
from actors.engines.trtllm.life.children import living
from actors.engines.trtllm.life.daemons import begin_in_daemon
from actors.engines.trtllm.life.ending import shut_down
from actors.engines.trtllm.life.faults import words_of_death
from actors.engines.trtllm.life.health import HealthPoll
from actors.engines.trtllm.life.memory import TrtllmMaintenance
from actors.engines.trtllm.life.memory_rules import MemoryRules
from actors.engines.trtllm.loading import Loaded, Loading, Progress
from actors.engines.trtllm.preparing import TrtllmPreparer
from actors.engines.trtllm.processors.steering import Steering
from actors.engines.trtllm.requests.asking import Asking, check_library
from actors.engines.trtllm.roles.handoffs import decode, encode
from actors.engines.trtllm.roles.request_ids import request_ids
from actors.engines.trtllm.roles.transfers import PendingTransfers
from actors.engines.trtllm.roles.transfers import timing_of as timing_metrics_of
from actors.engines.trtllm.running import Hooks, Running
from protocols.engine import EngineInfo, SpecPreparer
from protocols.errors import InternalError, StartStopped
from protocols.maintenance import Maintenance
from protocols.spec import GenerationSpec, Stage
from protocols.steps import Delta, EngineId, EngineStep

_log = logging.getLogger(__name__)


class TrtllmEngine:
    """Implements `protocols.engine.Engine`. progress: told of every stage of the start, in another thread."""

    def __init__(self, config: TrtllmConfig, progress: Progress | None = None) -> None:
        self.capabilities = capabilities_of(config)
        self._config = config
        self._steps = StepCollector()
        self._transfers = PendingTransfers(time.monotonic, config.transfer_s)
        self._loading = Loading(config, progress)
        self._preparer = TrtllmPreparer(config, self._read_handoff if config.role is Stage.DECODE else None)
        self._maintenance = TrtllmMaintenance(self._llm_or_none, MemoryRules.of(config), self._cache_lost)
        self._steering: Steering | None = None
        self._running: Running | None = None
        self._telling: Telling | None = None
        self._health: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_dead = False
        self._processes: set[int] = set()

    @property
    def name(self) -> str:
        return "trtllm"

    @property
    def preparer(self) -> SpecPreparer:
        return self._preparer

    @property
    def maintenance(self) -> Maintenance:
        return self._maintenance

    @property
    def pending_transfers(self) -> int:
        return self._transfers.count

    @property
    def progress(self) -> int:
        """Results, and iterations that the engine tells of, if it does: a long prompt has no other sign."""
        heard = 0 if self._running is None else self._running.progress
        return heard + (0 if self._telling is None else self._telling.iterations)

    async def start(self) -> EngineInfo:
        """Load in a thread. Once only."""
        if self._steering is not None:
            raise InternalError("start() was already called")
        if self._is_stopping:
            raise StartStopped("the engine was stopped before it started")
        self._steering = Steering(self._config)
        loaded = await self._loading.run()
        if self._is_stopping:
            raise StartStopped("the engine was stopped while it was starting")
        check_library(loaded.library, self._config)
        self._preparer.open()
        self._begin(loaded, self._steering)
        return loaded.info

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        """Raises EngineDead, and what the library raises for this one request. Nothing after `stop`."""
        if self._running is not None and not self._is_stopping:
            self._running.submit(engine_id, spec)

    def abort(self, engine_id: EngineId) -> None:
        if self._running is not None:
            self._running.abort(engine_id)

    def pause(self, engine_id: EngineId) -> None:
        """It cannot: see `capabilities`."""

    def resume(self, engine_id: EngineId) -> None:
        """Nothing was paused."""

    async def next_step(self) -> EngineStep:
        return await self._steps.next_step(self._count_running)

    async def stop(self) -> None:
        """Within 9 s: what outlasts that ends with the process."""
        self._is_stopping = True
        self._steps.close()
        self._preparer.close()
        if self._loading.loaded is None:
            await begin_in_daemon("trtllm-give-up", self._loading.give_up)
        if self._loading.loaded is not None:
            await self._end(self._loading.loaded)
        if self._steering is not None:
            self._steering.remove()

    def _begin(self, loaded: Loaded, steering: Steering) -> None:
        """What goes on beside the requests."""
        config = self._config
        telling = self._telling = Telling(loaded, config, self._steps)
        health = HealthPoll(loaded.llm, self._died)
        hooks = Hooks(
            Reading(encode, timing_of), self._died, health.look_soon, health.look_on, self._finished
        )
        new_id = (
            request_ids(loaded.library.get_global_disagg_request_id) if config.role is Stage.PREFILL else None
        )
        asking = Asking(loaded.library, config, new_id)
        self._running = Running(loaded, asking, steering, self._steps, hooks)
        self._processes = self._loading.processes
        telling.start()
        self._health = asyncio.get_running_loop().create_task(health.run(), name="trtllm-health")

    def _died(self, cause: BaseException) -> None:
        """Whether a process of it has ended is what an operator asks first, and no exception of it says."""
        if not self._is_dead:
            self._is_dead = True
            ended = len(self._processes - living(self._processes))
            text = "TensorRT-LLM is dead (%s); processes of it that have ended by themselves: %d"
            _log.error(text, words_of_death(cause), ended)
        self._steps.fail(cause)

    def _finished(self, last: Delta, result: Any) -> None:
        """A request has ended without an error."""
        if last.handoff is not None:
            self._transfers.answered(timing_metrics_of(result.outputs[0]))
        if self._telling is not None:
            self._telling.finished(result)

    async def _end(self, loaded: Loaded) -> None:
        if self._health is not None:
            self._health.cancel()
        if self._running is not None:
            await self._running.stop()
        if self._telling is not None:
            await self._telling.stop()
        await shut_down(loaded.llm, self._loading.processes)

    def _read_handoff(self, handoff: Mapping[str, Any]) -> object:
        """Raises InvalidRequest for what no prefill worker would send."""
        if self._loading.loaded is None:
            raise InternalError("a hand-off was read before the engine had started")
        return decode(handoff, self._loading.loaded.library)

    def _cache_lost(self) -> None:
        if self._telling is not None:
            self._telling.cache_lost()

    def _count_running(self) -> int:
        """Those beyond the batch wait inside of the engine."""
        if self._running is None or self._loading.loaded is None:
            return 0
        return min(self._running.running, self._loading.loaded.info.max_num_seqs)

    def _llm_or_none(self) -> Any:
        return None if self._loading.loaded is None else self._loading.loaded.llm
