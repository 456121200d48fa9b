"""What is there while nobody asks: to be the same after a hundred thousand hostile requests as before."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.worker import FacadeWorker

# What a request leaves behind if it leaves anything.
_OF_REQUESTS = (
    "Ticket",
    "Outbox",
    "GenerateRequest",
    "GenerationSpec",
    "Submit",
    "Resolved",
    "Transcript",
    "async_generator",
)
# The loop variable of a loop that waits: its last message, one for each actor and lane. Threads of an engine
# have theirs, one each.
_LOOP_VARIABLES = 8
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Census:
    """rss_mb: resident memory. objects: tracked by the collector. kept: of them, what belongs to requests."""

    rss_mb: float
    objects: int
    tasks: int
    kept: dict[str, int]


def take_census(worker: FacadeWorker) -> Census:
    """Of a worker at rest. Collects garbage first."""
    gc.collect()
    objects = gc.get_objects()
    kinds = Counter(type(each).__name__ for each in objects)
    return Census(
        rss_mb=psutil.Process().memory_info().rss / _MB,
        objects=len(objects),
        tasks=worker.loop.call(lambda: len(asyncio.all_tasks())),
        kept={name: kinds[name] for name in _OF_REQUESTS},
    )


def leaks(worker: FacadeWorker, before: Census, after: Census) -> Iterator[str]:
    """What the worker at rest still has of requests that are over."""
    ledger = worker.graph.ledger
    figures = {
        "live": ledger.live_count,
        "admitted": ledger.admitted + ledger.admitted_probes,
        "reserved_tokens": ledger.reserved_tokens,
        "open readers": worker.facade.open_readers,
        "messages under way": sum(box.waiting for box in worker.graph.mailboxes()),
        "sequences in the engine": worker.graph.executor.running_sequences,
    }
    yield from (f"{name} is {count} at rest" for name, count in figures.items() if count)
    if ledger.started != sum(ledger.outcomes.values()):
        yield f"books: {ledger.started} started, {sum(ledger.outcomes.values())} ended"
    if after.tasks > before.tasks:
        yield f"tasks grew from {before.tasks} to {after.tasks}"
    loops = _LOOP_VARIABLES + threading.active_count()
    for name, count in after.kept.items():
        if count > before.kept[name] + loops:
            yield f"{count - before.kept[name]} objects {name} are left"
