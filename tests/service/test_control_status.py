"""The control route ``status``: where a worker is, and when nobody would lose anything by its end."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dynamo.llm.exceptions import EngineShutdown

from protocols.bounds import Bound
from protocols.telemetry import Outcome, WorkerState
from service.controls import Controls
from tests.doubles.callers import wire_request
from tests.doubles.engines import ScriptedEngine

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker


def test_status_before_the_start(open_worker: OpenWorker) -> None:
    """Starting, nobody live, and certainly not safe to delete."""
    with open_worker() as worker:
        status = worker.control("status")
        assert status.pop("tasks") >= 1
        assert status.pop("rss_bytes") > 0
        assert status == {"state": "starting", "live": 0, "in_flight": 0, "safe_to_delete": False}


def test_status_counts_what_is_there(open_worker: OpenWorker) -> None:
    """Live, waiting, in the engine, being read, and how the others ended."""
    engine = ScriptedEngine(max_num_seqs=1)
    with open_worker(engine) as worker:
        worker.open()
        done = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        worker.finish(1)
        done.read_to_end()
        worker.ask(wire_request())
        worker.ask(wire_request())
        worker.until(lambda: worker.graph.executor.waiting_requests == 1)
        worker.until(lambda: worker.facade.open_readers == 2)
        status = worker.control("status")
        assert status.pop("outcomes") == {
            outcome.value: int(outcome is Outcome.COMPLETED) for outcome in Outcome
        }
        assert status.pop("tasks") >= len(worker.graph.actors)
        assert status.pop("rss_bytes") > 1 << 20
        assert status == {
            "state": "serving",
            "live": 2,
            "waiting": 1,
            "in_flight": 1,
            "readers": 2,
            "pending_transfers": 0,
            "in_discovery": True,
            "safe_to_delete": False,
            "memory": "awake",
            "asleep": [],
            "started": 3,
        }


def test_every_answer_is_json(open_worker: OpenWorker) -> None:
    """The framework sends what comes back as JSON."""
    with open_worker() as worker:
        worker.open()
        for name in ("status", "drain", "resume"):
            assert json.loads(json.dumps(worker.control(name), allow_nan=False))["live"] == 0


class FakeWorker:
    """As much of a worker as the verdict looks at."""

    def __init__(
        self,
        state: WorkerState,
        *,
        readers: int,
        transfers: int,
        is_idle: bool,
        is_dead: bool,
        is_listed: bool,
    ) -> None:
        self.open_readers = readers
        self.graph = self.drain = self.executor = self.ledger = self.death = self.discovery = self
        self.engine, self.maintenance = self, None
        self.state = state
        self.is_idle = is_idle
        self.is_dead = is_dead
        self.is_listed = is_listed
        self.is_stopping = False
        self.pending_transfers = transfers
        self.live_count = self.waiting_requests = self.running_sequences = self.started = 0
        self.outcomes: dict[Outcome, int] = {}


@pytest.mark.parametrize(
    ("state", "readers", "transfers", "is_idle", "is_dead", "is_listed"),
    list(
        product(
            [WorkerState.SERVING, WorkerState.DRAINING, WorkerState.DRAINED],
            [0, 1],
            [0, 1],
            [True, False],
            [True, False],
            [True, False],
        )
    ),
)
def test_safe_to_delete_is_drained_and_read_and_fetched_and_idle_and_alive_and_unlisted(
    state: WorkerState, readers: int, transfers: int, is_idle: bool, is_dead: bool, is_listed: bool
) -> None:
    """All six or not at all."""
    worker: Any = FakeWorker(
        state, readers=readers, transfers=transfers, is_idle=is_idle, is_dead=is_dead, is_listed=is_listed
    )

    async def ask() -> dict[str, Any]:
        return Controls(worker, worker).status()

    verdict = asyncio.run(ask())["safe_to_delete"]
    is_rid = state is WorkerState.DRAINED and readers == transfers == 0 and is_idle
    assert verdict is (is_rid and not is_dead and not is_listed)


def test_an_answer_that_is_not_read_yet_is_not_safe(
    open_worker: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drained, the engine idle, and one client still reading: the drain's answer and the status say no."""
    monkeypatch.setattr("service.control_drain._SETTLE_S", 0.1)
    with open_worker() as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=3))
        worker.until(lambda: worker.graph.ledger.is_empty)
        answer = worker.control("drain")
        assert (answer["state"], answer["readers"], answer["safe_to_delete"]) == ("drained", 1, False)
        assert worker.recorder.bounds == {Bound.READERS: 1}
        assert call.read_to_end().finish_reasons == ["length"]
        worker.until(lambda: worker.facade.open_readers == 0)
        assert worker.control("status")["safe_to_delete"] is True


def test_an_engine_that_still_holds_aborted_sequences_is_not_safe(open_worker: OpenWorker) -> None:
    """Nobody is live and nobody reads, but memory and slot are not confirmed free."""
    engine = ScriptedEngine(is_confirming=False)
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request())
        worker.until(lambda: engine.live)
        answer = worker.control("drain", timeout_s=0)
        assert isinstance(call.read_to_end().error, EngineShutdown)
        worker.until(lambda: worker.facade.open_readers == 0)
        assert (answer["state"], answer["in_flight"]) == ("drained", 1)
        assert worker.control("status")["safe_to_delete"] is False
        worker.finish(1)
        worker.until(lambda: worker.graph.executor.is_idle)
        assert worker.control("status")["safe_to_delete"] is True


def test_a_resumed_worker_is_not_safe_until_it_is_drained_again(open_worker: OpenWorker) -> None:
    """The verdict is about now."""
    with open_worker() as worker:
        worker.open()
        verdicts = [
            worker.control(name)["safe_to_delete"]
            for name in ("status", "drain", "resume", "status", "drain")
        ]
        assert verdicts == [False, True, False, False, True]


def test_a_dying_worker_is_not_safe(open_worker: OpenWorker) -> None:
    """Not even one that was drained: it is on its way out by itself, and says failed."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        worker.open()
        assert worker.control("drain")["safe_to_delete"] is True
        worker.loop.call(engine.die)
        worker.until(lambda: worker.facade.death.is_dead)
        status = worker.control("status")
        assert (status["state"], status["safe_to_delete"]) == ("failed", False)
