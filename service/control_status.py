"""The control route ``status``: where a worker is, and whether anybody would lose anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from protocols.telemetry import WorkerState
from service.maintenance import SleepCoordinator
from service.telemetry.process import rss_bytes

if TYPE_CHECKING:
    from service.engine import ActorEngine


def status_of(worker: ActorEngine, sleeper: SleepCoordinator) -> dict[str, Any]:
    """Plain values. ``safe_to_delete`` is true only when nobody would lose anything.

    A worker that is dying is not: it is on its way out by itself.
    """
    graph, is_dead = worker.graph, worker.death.is_dead
    # The framework leaves by itself as soon as a signal comes.
    is_listed = worker.discovery.is_listed and not worker.is_stopping
    process = {"tasks": len(asyncio.all_tasks()), "rss_bytes": rss_bytes()}
    if graph is None:
        state = WorkerState.FAILED if is_dead else WorkerState.STARTING
        return {"state": state.value, "live": 0, "in_flight": 0, "safe_to_delete": False, **process}
    transfers = worker.pending_transfers
    is_drained = graph.drain.state is WorkerState.DRAINED and not is_dead and not is_listed
    return {
        "state": WorkerState.FAILED.value if is_dead else graph.drain.state.value,
        "live": graph.ledger.live_count,
        "waiting": graph.executor.waiting_requests,
        "in_flight": graph.executor.running_sequences,
        "readers": worker.open_readers,
        "pending_transfers": transfers,
        "in_discovery": is_listed,
        "safe_to_delete": is_drained and graph.executor.is_idle and not (worker.open_readers or transfers),
        "memory": sleeper.state.value,
        "asleep": sleeper.asleep,
        "outcomes": {outcome.value: count for outcome, count in graph.ledger.outcomes.items()},
        "started": graph.ledger.started,
        **process,
    }
