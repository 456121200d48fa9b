"""Which memories of the engine are given back, read when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

from service.telemetry.families import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

    from protocols.maintenance import Maintenance


class MemoryGauges:
    """A collector in the sense of prometheus_client. Its labels are the engine's words, all of them."""

    def __init__(self, maintenance: Maintenance) -> None:
        self._maintenance = maintenance

    def describe(self) -> Iterable[Metric]:
        """The name, for the registry's check that nobody else has it."""
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        """Any thread: the set of what sleeps is exchanged as a whole, never changed."""
        text = "1 for a kind of the engine's memory that is given back, or may be; 0 for the others."
        family = GaugeMetricFamily(f"{PREFIX}memory_asleep", text, labels=("memory",))
        asleep = self._maintenance.asleep
        for memory in self._maintenance.memories:
            family.add_metric((memory,), int(memory in asleep))
        yield family
