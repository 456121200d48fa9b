"""How often each bound was reached. The one set of figures that every thread of the worker writes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily

from protocols.bounds import Bound
from service.telemetry.families import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric


class BoundCounts:
    """Implements `protocols.bounds.OnBound`, and is a collector in the sense of prometheus_client."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = dict.fromkeys(Bound, 0)

    def __call__(self, bound: Bound, count: int = 1, /) -> None:
        """Any thread."""
        with self._lock:
            self._counts[bound] += count

    def describe(self) -> Iterable[Metric]:
        """The names, for the registry's check that nobody else has them."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Any thread."""
        family = CounterMetricFamily(
            f"{PREFIX}bound_reached_total",
            "How often a bound was reached that no other metric counts.",
            labels=("bound",),
        )
        for bound, count in self._counts.items():
            family.add_metric((bound.value,), count)
        yield family
