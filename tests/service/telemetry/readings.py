"""Reading back what the listeners wrote."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from prometheus_client import CollectorRegistry


def samples_of(registry: CollectorRegistry) -> dict[str, float]:
    """Every sample, as ``name{label="value"}`` without the prefix all names share."""
    found: dict[str, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            name = sample.name.removeprefix("dynamo_actor_") + (f"{{{labels}}}" if labels else "")
            assert name not in found, f"{name} is there twice"
            found[name] = sample.value
    return found


def changes(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What a test moved: new minus old, buckets left out."""
    assert before.keys() == after.keys()
    return {
        name: after[name] - before[name]
        for name in after
        if after[name] != before[name] and "_bucket{" not in name
    }


class Lines(logging.Handler):
    """Keeps the records that reach the root logger."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def named(self, event: str) -> list[dict[str, Any]]:
        """The fields of our events of this name, with their level."""
        return [
            {"level": record.levelname, **getattr(record, "fields", {})}
            for record in self.records
            if getattr(record, "event", None) == event
        ]

    @property
    def text(self) -> str:
        """Everything a writer would write."""
        return "\n".join(
            record.getMessage() + json.dumps(getattr(record, "fields", {}), default=str)
            for record in self.records
        )


@contextmanager
def all_lines(level: int = logging.DEBUG) -> Generator[Lines, None, None]:
    """Listen at the root logger in place of everybody else."""
    root = logging.getLogger()
    lines, before = Lines(), (root.handlers[:], root.level)
    root.handlers[:] = [lines]
    root.setLevel(level)
    try:
        yield lines
    finally:
        root.handlers[:], level_before = before[0], before[1]
        root.setLevel(level_before)
