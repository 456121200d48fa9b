"""The framework's context is let go with the answer's end: its span ends when the last reference does.

Held in a circle it would wait for Python's cyclic garbage collector, and a worker that ends or idles before
that would never tell ``engine.generate`` to anybody.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from protocols.steps import FinishReason
from tests.doubles.callers import wire_request
from tests.doubles.contexts import FakeClient
from tests.doubles.engines import ScriptedEngine
from tests.service.worker import budgets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.bridge import BridgeCall
    from tests.doubles.contexts import FakeContext
    from tests.service.conftest import OpenWorker
    from tests.service.worker import FacadeWorker


class Watched(FakeClient):
    """Knows which of its contexts still exist."""

    def __init__(self, metadata: dict[str, str] | None = None) -> None:
        super().__init__(metadata=metadata)
        self._given: list[weakref.ref[FakeContext]] = []

    def context(self) -> FakeContext:
        context = super().context()
        self._given.append(weakref.ref(context))
        return context

    @property
    def held(self) -> int:
        """Contexts that somebody still has."""
        return sum(given() is not None for given in self._given)


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _drop(call: BridgeCall) -> None:
    """The driver's own frames are in the traceback of what left the facade, and know it."""
    if call.error is not None:
        call.error = call.error.with_traceback(None)
    call.forget()


def _is_let_go(worker: FacadeWorker, call: BridgeCall, client: Watched) -> bool:
    """After the framework has dropped what it was given, and every actor has had its turn."""
    _drop(call)
    worker.settle_engine()
    worker.until(lambda: client.held == 0)
    return True


def _in_the_middle(engine: ScriptedEngine, worker: FacadeWorker) -> tuple[Watched, BridgeCall]:
    """A client, and its request that has got its first token."""
    client = Watched()
    worker.open()
    call = worker.ask(wire_request(), client)
    worker.until(lambda: engine.live)
    worker.say(1, 5)
    call.step()
    return client, call


def test_after_an_answer_that_was_read_to_its_end(open_worker: OpenWorker) -> None:
    """The last tokens come with the finish, and are read after it."""
    engine, client = ScriptedEngine(), Watched()
    with open_worker(engine) as worker:
        worker.open()
        call = worker.ask(wire_request(max_tokens=2), client)
        worker.until(lambda: engine.live)
        worker.finish(1, FinishReason.LENGTH, [1, 2])
        assert call.read_to_end().finish_reasons == ["length"]
        assert _is_let_go(worker, call, client)


def test_after_a_refusal(open_worker: OpenWorker) -> None:
    """The error that was raised goes too."""
    client = Watched()
    with open_worker(ScriptedEngine()) as worker:
        worker.open()
        call = worker.generate(wire_request(temperature=-1.0), client).read_to_end()
        assert worker.outcomes == {"refused": 1}
        assert _is_let_go(worker, call, client)


def test_after_a_failure_of_the_engine(open_worker: OpenWorker) -> None:
    """Some tokens, then its fault."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        client, call = _in_the_middle(engine, worker)
        worker.fail(1, "a fault")
        call.read_to_end()
        assert worker.outcomes == {"failed": 1}
        assert _is_let_go(worker, call, client)


def test_after_a_client_that_left(open_worker: OpenWorker) -> None:
    """Its request ends, whoever holds the rest of the answer."""
    engine = ScriptedEngine()
    with open_worker(engine) as worker:
        client, call = _in_the_middle(engine, worker)
        worker.leave(client)
        call.read_to_end()
        assert worker.outcomes == {"cancelled": 1}
        assert _is_let_go(worker, call, client)


def test_after_a_deadline(open_worker: OpenWorker) -> None:
    """The sweeper's word is the same error for nobody else."""
    engine, client = ScriptedEngine(), Watched({"deadline-ms": "20"})
    with open_worker(engine) as worker:
        worker.open()
        call = worker.generate(wire_request(), client).read_to_end()
        assert worker.outcomes == {"deadline": 1}
        assert _is_let_go(worker, call, client)


def test_after_a_drain_that_could_not_wait(open_worker: OpenWorker) -> None:
    """All of them end with one error; none keeps another."""
    engine, clients = ScriptedEngine(), [Watched(), Watched()]
    with open_worker(engine, drain=budgets(0.02, 5.0)) as worker:
        worker.open()
        calls = [worker.ask(wire_request(), client) for client in clients]
        worker.until(lambda: len(engine.live) == 2)
        cleanup = worker.begin_cleanup()
        for call in calls:
            _drop(call.read_to_end())
        cleanup.result(10)
        assert worker.outcomes == {"interrupted": 2}
        worker.until(lambda: sum(client.held for client in clients) == 0)
