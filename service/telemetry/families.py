"""Counters, gauges and histograms whose figures are numbers of this process and nothing else.

The library's own write every figure into files that all processes share once PROMETHEUS_MULTIPROC_DIR
is set, which the libraries of engines do: a second worker in the process begins with the figures of
the first, and a container that starts again with those of the one before, whose pid it has. These
cannot; registry, checks of names and text stay the library's.

A child is bound once, at the start, and belongs to one thread (or its owner locks): an increment is
one addition. A scrape reads from any thread, and may miss what is being added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

# Of every name; the framework's bridge selects by it.
PREFIX = "dynamo_actor_"


class Counter:
    """A number that never falls."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, by: float = 1) -> None:
        """What is negative, or no number, counts as nothing: engines say what they like."""
        if by > 0:
            self.value += by


class Gauge:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        """From now on it is this."""
        self.value = value


class Histogram:
    """How many values lay at each bound or below it, and their sum. bounds: rising, below a million."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, value: float) -> None:
        """One value more. What is negative, or no number, counts as nought."""
        counted = value if value > 0 else 0
        self.counts[bisect_left(self.bounds, counted)] += 1
        self.total += counted

    def buckets(self) -> list[tuple[str, int]]:
        """As the text format wants them: each with all that are below it, the last one with all."""
        labels = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(labels, accumulate(self.counts), strict=True))


Child = TypeVar("Child", Counter, Gauge, Histogram)


class Family(ABC, Generic[Child]):
    """One name with all its series: a collector in the sense of prometheus_client.

    Raises ValueError where the registry knows the name already.
    """

    def __init__(self, registry: CollectorRegistry, name: str, text: str, *labels: str) -> None:
        self._name = PREFIX + name
        self._text = text
        self._labels = labels
        self._children: dict[tuple[str, ...], Child] = {}
        registry.register(self)

    def of(self, *values: str) -> Child:
        """The series with these values of the labels. It is born here: at the start, never later."""
        if len(values) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {self._labels}, not {len(values)} of them")
        return self._children.setdefault(values, self._new())

    def describe(self) -> Iterable[Metric]:
        """The name, for the registry's check that nobody else has it."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Any thread."""
        yield self._filled()

    @abstractmethod
    def _new(self) -> Child: ...

    @abstractmethod
    def _filled(self) -> Metric: ...


class Counters(Family[Counter]):
    """A counter for each combination of labels."""

    def _new(self) -> Counter:
        return Counter()

    def _filled(self) -> Metric:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            family.add_metric(values, child.value)
        return family


class Gauges(Family[Gauge]):
    """A gauge for each combination of labels."""

    def _new(self) -> Gauge:
        return Gauge()

    def _filled(self) -> Metric:
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            family.add_metric(values, child.value)
        return family


class Histograms(Family[Histogram]):
    """A histogram for each combination of labels, all with the same bounds."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, bounds: Sequence[float], *labels: str
    ) -> None:
        self._bounds = bounds
        super().__init__(registry, name, text, *labels)

    def _new(self) -> Histogram:
        return Histogram(self._bounds)

    def _filled(self) -> Metric:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, child in self._children.items():
            family.add_metric(values, child.buckets(), child.total)
        return family
