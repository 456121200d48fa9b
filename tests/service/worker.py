"""One facade with everything around it, and the books that must balance when it is over."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import CollectorRegistry

from actors.engines.synthetic import SyntheticConfig, SyntheticEngine
from actors.settings import GraphSettings
from protocols.spec import Stage
from protocols.steps import EngineId, FinishReason
from service.engine import ActorEngine
from service.framework import build_worker_config
from service.options.budgets import DrainBudgets
from service.plan import ServingPlan
from service.stopping import StopSignals
from service.system_server import SystemServer
from service.telemetry.loop_lag import LoopLag
from tests.doubles.bridge import BridgeDriver
from tests.doubles.endpoints import EndpointDouble
from tests.doubles.engines import ScriptedEngine
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.graph import Graph
    from protocols.engine import Engine
    from protocols.telemetry import RequestStory
    from tests.doubles.bridge import LoopThread

# Long enough for every request of a test to finish; tests of the ladder's end bring their own.
PATIENT = DrainBudgets(
    grace_s=0.0, move_at_s=7.0, drain_until_s=10.0, return_by_s=12.0, guard_at_s=13.0, hard_exit_s=14.0
)


def budgets(drain_s: float, return_by_s: float) -> DrainBudgets:
    """A ladder without grace, in the proportions of the real one."""
    return DrainBudgets(
        grace_s=0.0,
        move_at_s=0.7 * drain_s,
        drain_until_s=drain_s,
        return_by_s=return_by_s,
        guard_at_s=return_by_s + 1.0,
        hard_exit_s=return_by_s + 2.0,
    )


def synthetic(step_ms: float = 0.0, max_num_seqs: int = 256) -> SyntheticEngine:
    """The engine without a model, as fast as it is read unless a pace is given."""
    return SyntheticEngine(SyntheticConfig(step_ms=step_ms, max_num_seqs=max_num_seqs))


class RecorderDouble(RecordingTelemetry):
    """What the facade asks of a recorder beyond listening."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = CollectorRegistry()
        self.lags: list[float] = []
        self.loop_lag = LoopLag(self.lags.append)
        self.chunks = 0
        self.kv_counts = Counter[str]()
        self.cache_hit_rate: float | None = None
        self.watched: list[Graph] = []
        self.shutdowns = 0
        self.awaited: list[int] = []

    def watch(self, graph: Graph) -> None:
        self.watched.append(graph)

    def graph_closed(self) -> None:
        self.watched.clear()

    def count_chunk(self) -> None:
        self.chunks += 1

    def kv_events(self, result: str, count: int) -> None:
        self.kv_counts[result] += count

    def readers_awaited(self, readers: int, left_s: float) -> None:
        assert left_s > 0
        self.awaited.append(readers)

    def shutdown(self) -> None:
        self.shutdowns += 1


class FacadeWorker(BridgeDriver):
    """A facade and its surroundings. ``events``: what the outside saw, in order."""

    def __init__(
        self,
        loop: LoopThread,
        engine: Engine | None = None,
        *,
        drain: DrainBudgets = PATIENT,
        control_token: str | None = None,
        is_loopback: bool = True,
        recorder: Any = None,
        publishes_kv_events: bool = False,
        role: Stage = Stage.WHOLE,
        has_system_server: bool = False,
        **settings: Any,
    ) -> None:
        self.events: list[str] = []
        self.signals = StopSignals()
        self.engine = engine or synthetic()
        self.recorder: Any = recorder or RecorderDouble()
        plan = ServingPlan(
            graph=GraphSettings(**settings),
            budgets=drain,
            worker_config=build_worker_config({"namespace": "test", "model_input": None}),
            model_path="model",
            served_model_name="served",
            control_token=control_token,
            is_loopback=is_loopback,
            publishes_kv_events=publishes_kv_events,
            role=role,
            system_server=SystemServer("127.0.0.1", 0) if has_system_server else None,
        )
        facade = ActorEngine(plan, self.engine, cast("Any", self.recorder), self.signals)
        super().__init__(facade, loop)

    def open(self) -> FacadeWorker:
        """Start it and give it its endpoint, as the framework does before it serves."""
        self.start()
        self.loop.run(self.facade.on_endpoint_ready(EndpointDouble(self.events)))
        return self

    @property
    def graph(self) -> Graph:
        graph = self.facade.graph
        assert graph is not None, "the worker was not started"
        return graph

    @property
    def stories(self) -> list[RequestStory]:
        """What became of every request, in the order of endings."""
        return list(self.recorder.stories.values())

    @property
    def outcomes(self) -> Counter[str]:
        """Stories by outcome."""
        return Counter(story.outcome.value for story in self.stories)

    def control(self, name: str, **body: Any) -> dict[str, Any]:
        """A control route, in a task of its own."""
        return self.loop.run(self.facade.engine_control(name, body))

    def send_signal(self) -> None:
        """What our signal handler does, here from the test's thread."""
        self.signals._on_signal(signal.SIGTERM, None)

    def say(self, number: int, *token_ids: int, index: int = 0) -> None:
        """The scripted engine gives tokens to the request of this number."""
        self.loop.call(lambda: self.script.say(EngineId(number), *token_ids, index=index))

    def finish(
        self, number: int, reason: FinishReason = FinishReason.STOP, token_ids: Iterable[int] = ()
    ) -> None:
        """The scripted engine ends the request of this number."""
        self.loop.call(lambda: self.script.finish(EngineId(number), reason, token_ids))

    def fail(self, number: int, error: str) -> None:
        """The scripted engine fails the request of this number."""
        self.loop.call(lambda: self.script.fail(EngineId(number), error))

    @property
    def script(self) -> ScriptedEngine:
        """The engine, where the test speaks for it."""
        assert isinstance(self.engine, ScriptedEngine), "this engine speaks for itself"
        return self.engine

    def settle_engine(self) -> None:
        """Until the engine has confirmed everything and the graph has nothing under way."""
        self.until(
            lambda: self.graph.executor.is_idle and not any(box.waiting for box in self.graph.mailboxes())
        )

    def end(self) -> None:
        """Whatever the test left open is dropped, and the worker stopped."""
        self.close()
        self.cleanup()

    def check_closed(self) -> None:
        """After cleanup, whatever happened: nobody is owed anything and every request has one story."""
        for call in self.calls:
            assert call.terminals <= 1
        graph = self.facade.graph
        if graph is None:
            return
        assert graph.ledger.is_empty
        assert graph.ledger.admitted == graph.ledger.reserved_tokens == 0
        assert graph.ledger.started == sum(graph.ledger.outcomes.values())
        if isinstance(self.recorder, RecorderDouble):
            # Probes are in no count.
            assert graph.ledger.started == sum(not story.is_probe for story in self.stories)
        self.until(lambda: self.facade.open_readers == 0)
