"""A registry that leaves out what nobody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

# Of every name; the framework's bridge selects by it.
PREFIX = "dynamo_actor_"


class OwnRegistry(CollectorRegistry):
    """Without the ``_created`` series.

    In the classic text format, the only one the framework's endpoint speaks, they are a gauge beside every
    counter: a third more series that say when the worker started. The library can switch them off for the
    whole process only, and an engine's library may want its own.
    """

    def collect(self) -> Iterable[Metric]:
        """Any thread. The families are made anew for every scrape, so changing them is safe."""
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
