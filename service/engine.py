# pyright: reportMissingImports=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownVariableType=false
# Half of what the framework's contract names lives in its compiled module, which has no stubs for it.
"""The facade: the framework's unified-backend contract, forwarded into the graph.

Every call arrives in an asyncio task of its own, and so does every step of ``generate()``. So
nothing here is held across a ``yield``, no task group is opened here, and what must outlive a call
lives in the graph, which the supervisor holds open. The file is long because the contract is: a method for
each of its calls, a few lines each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from dynamo._core import Context
from dynamo._core.backend import EngineMetrics
from dynamo.common.backend import EngineConfig, LLMEngine, WorkerConfig
from dynamo.common.backend.engine import GenerateChunk, GenerateRequest, LogitsProcessorSpec
from dynamo.common.backend.health_check import build_health_check_payload
from dynamo.common.backend.metrics import register_engine_registry
from dynamo.common.backend.publisher import KvEventSource
from dynamo.llm.exceptions import EngineShutdown as FrameworkEngineShutdown

from actors.drain import DrainLadder
from actors.graph import Graph, open_graph
from actors.supervisor import FutureWakeup, Supervisor
from actors.surroundings import Surroundings
from actors.ticket import Ticket
from protocols.bounds import Bound
from protocols.chunks import probe_answer
from protocols.engine import Engine, EngineInfo
from protocols.errors import StartStopped
from protocols.kv_listener import NullKvListener
from protocols.requests import is_probe
from protocols.spec import Stage
from protocols.telemetry import DrainReport
from service.controls import Controls
from service.death import DeathPath
from service.discovery import Discovery
from service.engine_metrics import bridge_engine_metrics
from service.kv_publishing import KvPublishing
from service.last_scrape import LastScrape
from service.loop_guard import LATEST, LoopGuard
from service.notify import Follower, Notifier
from service.options.budgets import READ_S
from service.plan import ServingPlan
from service.readers import Readers
from service.registration import engine_config
from service.stop_times import StopTimes
from service.stopping import StopSignals
from service.telemetry.families import PREFIX
from service.telemetry.logs import get_logger
from service.telemetry.recorder import Recorder
from service.transfers import wait_transferred
from service.translation import ContextCaller, to_framework

# After the last generator has closed, its last bytes are still on their way through the
# framework's runtime; measured: gone within 0.1 s.
_FLUSH_S = 0.2


class ActorEngine(LLMEngine):
    """One worker's engine, as the framework drives it."""

    def __init__(
        self,
        plan: ServingPlan,
        engine: Engine,
        recorder: Recorder,
        signals: StopSignals,
        notifier: Notifier | None = None,
    ) -> None:
        self._plan = plan
        self._signals = signals
        self.times = StopTimes(signals, plan.budgets)
        self._recorder = recorder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._graph: Graph | None = None
        self._readers: Readers | None = None
        self._supervisor: Supervisor[Graph] | None = None
        self._engine = engine
        self._start_failure: BaseException | None = None
        self._loop_lag: asyncio.Task[None] | None = None
        self._loop_guard: LoopGuard | None = None
        # Never opened, so without anything to tell, unless the operator asked for it.
        self.kv = KvPublishing(recorder, untold=engine.capabilities.untold)
        # Who comes back tells routers anew: they have dropped what they knew about our cache.
        self.discovery = Discovery(lambda: self.is_stopping, self.kv.forgotten, recorder.bound_reached)
        self.notifier = notifier or Notifier()
        self._follower = Follower(self.notifier)
        self._last_scrape = LastScrape(self.notifier)
        self.death = DeathPath(signals, self.discovery, self.notifier)
        self._controls = Controls(self, plan)

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[ActorEngine, WorkerConfig]:
        """Build from a command line; starts nothing. Raises what `service.serving.assemble` does."""
        from service.serving import assemble  # noqa: PLC0415 - serving builds this class

        engine = assemble(argv, StopSignals())
        return engine, engine.worker_config

    @property
    def worker_config(self) -> WorkerConfig:
        """What the framework registers this worker as."""
        return self._plan.worker_config

    @property
    def was_started(self) -> bool:
        """Whether the framework got as far as calling ``start()``."""
        return self._supervisor is not None or self._graph is not None

    @property
    def start_failure(self) -> BaseException | None:
        """What ``start()`` raised, before the framework wrapped it."""
        return self._start_failure

    @property
    def engine(self) -> Engine:
        """The driver, also before it has started."""
        return self._engine

    @property
    def graph(self) -> Graph | None:
        """The open graph; None before ``start()`` has returned."""
        return self._graph

    @property
    def is_stopping(self) -> bool:
        """Whether the process is on its way out, be it still serving what it has."""
        return self._signals.is_asked or self.death.is_dead

    @property
    def open_readers(self) -> int:
        """Generators that are still being read."""
        return 0 if self._readers is None else len(self._readers)

    @property
    def pending_transfers(self) -> int:
        """KV caches that were handed over and that another worker may still be reading."""
        return 0 if self._graph is None else self._engine.pending_transfers

    @property
    def recorder(self) -> Recorder:
        """Who listens to the graph."""
        return self._recorder

    async def start(self, worker_id: int) -> EngineConfig:
        """Open the graph. Raises what the engine's start raised; a signal meanwhile ends it."""
        del worker_id
        self._signals.leave_it_to_the_framework()
        self._loop = asyncio.get_running_loop()
        self._readers = Readers(self._recorder.readers_awaited)
        self._supervisor = Supervisor(lambda: open_graph(self._plan.graph, self._surroundings()))
        self._signals.listen(self._on_signal_anywhere)
        # Never later than the exit guard: a signal that no handler gets to see is answered in time too.
        stand_s = min(self._plan.graph.hang_timeout_s, self._plan.budgets.guard_at_s / LATEST)
        self._loop_guard = LoopGuard(self._loop, stand_s, self.notifier.last_word)
        self._follower.guarded(self._loop_guard.longest_s)
        try:
            if self._plan.system_server is not None:
                # In a thread: a host's name may have to be looked up.
                await asyncio.to_thread(self._plan.system_server.require_port)
            if self._signals.is_asked:
                raise StartStopped("a stop was asked for before the start")
            self._graph = await self._supervisor.start()
            if self._supervisor.failure is not None:
                raise StartStopped("the start was interrupted in its last moment")
        except BaseException as exc:
            self._start_failure = exc
            raise
        self._recorder.watch(self._graph)
        if self._plan.publishes_kv_events:
            self.kv.open(self._loop, self._graph.info)
        _say_ready(self._engine.name, self._graph.info)
        self._loop_lag = self._loop.create_task(self._recorder.loop_lag.run(), name="loop-lag")
        return engine_config(self._plan, self._graph.info)

    async def generate(
        self, request: GenerateRequest, context: Context
    ) -> AsyncGenerator[GenerateChunk, None]:
        """Read one request's outbox until its last word. Raises the framework's typed errors only."""
        graph, readers, loop = self._graph, self._readers, self._loop
        if graph is None or readers is None or loop is None:
            raise FrameworkEngineShutdown("this worker is not serving")
        if is_probe(request) and self._controls.sleeper.vouches():
            yield probe_answer()  # type: ignore[misc] # as below
            return
        try:
            caller = ContextCaller(context)
            if self._plan.role is Stage.DECODE:
                # The framework keeps a cancel from decode workers until their first token, which is for the
                # engine to do: it knows whether a KV cache is under way.
                context.notify_first_token()
        except Exception as exc:
            raise to_framework(exc) from exc
        ticket = graph.submit(caller, request)
        readers.opened(ticket)
        try:
            outbox = ticket.outbox
            while not outbox.is_drained:
                if context.is_stopped() and outbox.terminal is None:
                    graph.reader_gone(ticket)
                    await outbox.wait_terminal()
                chunk = await outbox.take()
                if not ticket.is_probe:
                    self._recorder.count_chunk()
                yield chunk  # type: ignore[misc] # ours names the keys that theirs leaves open
        except Exception as exc:
            # Ours, or a bug's: nothing but the framework's errors leaves. The outbox keeps what it raised; a
            # traceback would hold the outbox, and the context would wait in the circle for the cyclic GC.
            raise to_framework(exc) from exc.with_traceback(None)
        finally:
            # Perhaps in a garbage collector, on a foreign thread, without a loop: one plain call.
            self._tell_loop(self._on_reader_closed, ticket)

    async def abort(self, context: Context) -> None:
        """The client has left, or the frontend has seen enough."""
        if self._graph is not None:
            self._graph.cancel_context(context.id())

    async def drain(self, ladder: DrainLadder | None = None) -> DrainReport | None:
        """Close admission and wait until nobody is live; None when the graph broke meanwhile.

        Used by ``cleanup()`` and by the control route. Any task, also several at once.
        """
        if self._graph is None or self._supervisor is None:
            return None
        report = await self._supervisor.while_open(self._graph.drain_by(ladder or self.times.ladder()))
        self._last_scrape.all_counted(report)
        return report

    async def wait_read(self, until_s: float) -> None:
        """Until every answer that is there has been read by whoever is there to read it. Monotonic time."""
        if self._readers is not None and await self._readers.wait_closed(until_s):
            self._recorder.bound_reached(Bound.READERS)

    async def is_quiescent(self) -> bool | None:
        """Whether the engine holds nothing of ours, nor for others. None: not started.

        The framework asks a prefill worker twice a second from the end of its grace on, and cleans up when
        this is so or its patience is over: the drain begins with the first time that it asks.
        """
        graph = self._graph
        if graph is None:
            return None
        if self._signals.is_asked and not self.death.is_dead:
            graph.drain.begin(self.times.ladder())
        return graph.ledger.is_empty and graph.executor.is_idle and not self.pending_transfers

    async def cleanup(self) -> None:
        """Drain, wait for every generator, stop the engine. Idempotent; also after a failed start."""
        supervisor = self._supervisor
        if supervisor is None:
            return
        read_by_s, flush_at_s = self.times.read_by_s, self.times.flush_at_s
        if self._graph is None:
            # A start that was cancelled: nobody waits for the model any more.
            supervisor.interrupt()
        report = await self.drain()
        if self.death.is_dead:
            # Everybody's last word is an error, and whoever asked can ask another worker.
            read_by_s = min(read_by_s, time.monotonic() + READ_S)
        elif self._graph is not None:
            await wait_transferred(self._engine, self._transferred_by_s)
        await self.wait_read(read_by_s)
        await asyncio.sleep(_FLUSH_S)
        await supervisor.stop()
        self._recorder.graph_closed()
        self._tell_how_it_closed(supervisor.failure)
        self._supervisor = None
        self.kv.close()
        if self._loop_lag is not None:
            self._loop_lag.cancel()
        await self._wait_scraped(report, flush_at_s)
        # A collector that hangs may hold this for 2 s; the loop goes on meanwhile.
        await asyncio.to_thread(self._recorder.shutdown)
        if self._loop_guard is not None:
            self._loop_guard.stop()

    async def health_check_payload(self) -> dict[str, Any] | None:
        """One greedy token after the model's first token id: real work, and in no request's figures."""
        if self._graph is None:
            return None
        return build_health_check_payload(self._graph.info.bos_token_id)

    async def register_prometheus(self, metrics: EngineMetrics) -> None:
        """Put our registry behind the framework's one ``/metrics``."""
        if self._plan.system_server is not None:
            self._last_scrape.watch(metrics)
        register_engine_registry(metrics, self._recorder.registry, prefix_filters=[PREFIX])
        bridge_engine_metrics(metrics, self._engine.name)

    async def kv_event_sources(self) -> list[KvEventSource]:
        """Where the framework hands over its publishers, one for each rank of the cache."""
        # Routers send a decode worker what another one has computed, whatever lies in its own cache.
        return [] if self._plan.role is Stage.DECODE else self.kv.sources()

    def component_metrics_dp_ranks(self) -> list[int]:
        """Called in a thread without a loop."""
        return self.kv.snapshot_ranks()

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        """Called in a thread without a loop."""
        self.kv.attach_snapshots(publisher)

    async def logits_processor_spec(self) -> LogitsProcessorSpec | None:
        """The logits processors of every request. Those that requests choose are not activated by it."""
        return self._plan.logits_processors

    async def on_endpoint_ready(self, endpoint: Any) -> None:
        """Keep the endpoint: a worker that drains by hand or dies leaves discovery through it."""
        self.discovery.opened(endpoint)
        self._follower.opened(endpoint)
        seconds = time.monotonic() - self._signals.began_s
        get_logger("service.engine").info("worker.ready", seconds=round(seconds, 3))

    def supported_controls(self) -> set[str]:
        """Called in a thread without a loop."""
        return self._controls.names()

    async def engine_control(self, control: str, body: dict[str, Any]) -> dict[str, Any]:
        """A control route of the system server."""
        return await self._controls.handle(control, body)

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            engine=self._engine,
            telemetry=self._follower.beside(self._recorder),
            clock=time.monotonic,
            on_crash=self.death.on_crash,
            new_wakeup=FutureWakeup,
            kv_listener=self.kv if self._plan.publishes_kv_events else NullKvListener(),
        )

    def _tell_how_it_closed(self, failure: BaseException | None) -> None:
        """A start that failed was raised, a crash has had its line: what is left broke while stopping."""
        if failure is not None and self._start_failure is None and not self.death.is_dead:
            get_logger("service.engine").error("worker.stop_failed", exc_info=failure)

    async def _wait_scraped(self, report: DrainReport | None, until_s: float) -> None:
        """Where requests were lost, and nobody is in a hurry."""
        lost = 0 if report is None else report.interrupted - report.moved
        if lost > 0 and not self.death.is_dead and not self._signals.is_forced:
            await self._last_scrape.wait(lost, until_s)

    def _transferred_by_s(self) -> float:
        """An engine that is dead hands nothing over any more."""
        return 0.0 if self.death.is_dead else self.times.ladder().end_at_s

    def _on_signal_anywhere(self, count: int) -> None:
        self._tell_loop(self._on_signal, count)

    def _on_signal(self, count: int) -> None:
        """A start is given up; a second signal ends a drain, and the wait for a scrape, now."""
        if count > 1:
            self._last_scrape.give_up()
        if self._supervisor is None:
            return
        if self._graph is None:
            self._supervisor.interrupt()
        elif count > 1 and not self.death.is_dead:
            self._graph.drain.begin(self.times.ladder())

    def _on_reader_closed(self, ticket: Ticket) -> None:
        if self._readers is not None and self._graph is not None:
            self._readers.closed(ticket)
            self._graph.reader_gone(ticket)

    def _tell_loop(self, callback: Any, argument: Any) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:
            # The loop is closed: cleanup has ended every request already.
            return


def _say_ready(engine: str, info: EngineInfo) -> None:
    """The line that tells an operator what he got."""
    get_logger("service.engine").info(
        "engine.ready",
        engine=engine,
        about=info.description,
        context_tokens=info.context_length,
        max_num_seqs=info.max_num_seqs,
    )
