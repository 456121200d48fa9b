"""Figures that are read when somebody asks: nothing is paid for them in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import GaugeMetricFamily

from protocols.engine import Figure
from service.telemetry.families import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from prometheus_client.metrics_core import Metric

    from actors.mailbox import Mailbox
    from protocols.engine import EngineInfo

# The mailboxes of a graph, so that their series exist before it opens; a test holds the graph to it.
MAILBOXES = ("intake", "resolver", "resolver_parked", "executor", "streamer", "monitor", "executor_control")


class LedgerView(Protocol):
    """The books, as a gauge sees them."""

    @property
    def live_count(self) -> int:
        """Requests without an outcome."""
        ...


class ExecutorView(Protocol):
    """The executor, as a gauge sees it."""

    @property
    def running_requests(self) -> int:
        """Requests the engine holds, those being aborted included."""
        ...

    @property
    def running_sequences(self) -> int:
        """Sequences the engine holds."""
        ...

    @property
    def waiting_requests(self) -> int:
        """Requests in the waiting room."""
        ...


class GraphView(Protocol):
    """The open graph, as a scrape sees it: counters only, from a thread that is not the loop's."""

    @property
    def ledger(self) -> LedgerView:
        """Who is live."""
        ...

    @property
    def executor(self) -> ExecutorView:
        """What the engine holds."""
        ...

    @property
    def info(self) -> EngineInfo:
        """What the engine said at its start."""
        ...

    def mailboxes(self) -> Sequence[Mailbox]:
        """Depth and capacity of every lane."""
        ...


class LiveGauges:
    """A collector in the sense of prometheus_client. Zero everywhere before `watch` and after `close`.

    untold: what the engine does not tell, and what therefore has no series.
    info: what the engine said at its start; None before it. used_blocks, cached_blocks, step_s: KV blocks
    of requests, those kept for reuse, and how long the step took; written by the event loop after every step.
    """

    def __init__(self, untold: Collection[Figure] = ()) -> None:
        self._untold = frozenset(untold)
        self._graph: GraphView | None = None
        self.info: EngineInfo | None = None
        self.used_blocks = 0
        self.cached_blocks = 0
        self.step_s = 0.0

    def watch(self, graph: GraphView) -> None:
        """Event loop: from now on the figures are this graph's."""
        self.info = graph.info
        self._graph = graph

    def close(self) -> None:
        """Event loop: the graph is closed and its engine has stopped, so nobody holds anything any more.

        What lay in the lanes of a graph that broke lies there for ever, and is nobody's.
        """
        self._graph = None
        self.used_blocks = self.cached_blocks = 0
        self.step_s = 0.0

    @property
    def running_requests(self) -> int:
        """Requests the engine holds."""
        graph = self._graph
        return 0 if graph is None else graph.executor.running_requests

    @property
    def waiting_requests(self) -> int:
        """Requests in the waiting room."""
        graph = self._graph
        return 0 if graph is None else graph.executor.waiting_requests

    def describe(self) -> Iterable[Metric]:
        """The names, for the registry's check that nobody else has them."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Any thread."""
        graph = self._graph
        yield from self._mailboxes(graph)
        live = 0 if graph is None else graph.ledger.live_count
        sequences = 0 if graph is None else graph.executor.running_sequences
        yield _family("requests_live", "Requests that are owed an outcome.", live)
        text = "Requests that wait for a slot of the engine."
        yield _family("requests_waiting", text, self.waiting_requests)
        text = "Requests the engine holds, until it confirms their end."
        yield _family("requests_in_flight", text, self.running_requests)
        yield _family("engine_running_sequences", "Sequences the engine holds.", sequences)
        if Figure.USED_BLOCKS not in self._untold:
            yield self._blocks()

    def _blocks(self) -> Metric:
        """Without the cached ones, where these count as free."""
        total = 0 if self.info is None else self.info.all_blocks or 0
        used, cached = self.used_blocks, self.cached_blocks
        blocks = _family("kv_blocks", "Blocks of the paged KV cache, of all ranks.", labels=("state",))
        blocks.add_metric(("used",), used)
        if Figure.CACHED_BLOCKS not in self._untold:
            blocks.add_metric(("cached",), cached)
        blocks.add_metric(("free",), max(0, total - used - cached))
        return blocks

    def _mailboxes(self, graph: GraphView | None) -> Iterable[Metric]:
        depth = _family("mailbox_depth", "Messages that wait for an actor.", labels=("actor",))
        capacity = _family("mailbox_capacity", "Messages that fit.", labels=("actor",))
        found = {} if graph is None else {box.actor: box for box in graph.mailboxes()}
        for actor in dict.fromkeys((*MAILBOXES, *found)):
            box = found.get(actor)
            depth.add_metric((actor,), 0 if box is None else box.waiting)
            capacity.add_metric((actor,), 0 if box is None else box.capacity)
        yield depth
        yield capacity


def _family(
    name: str, text: str, value: float | None = None, labels: Sequence[str] | None = None
) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value, labels=labels)
