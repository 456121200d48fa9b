"""A facade around an engine double, driven as the framework drives it, and audited afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from tests.doubles.bridge import LoopThread
from tests.service.worker import FacadeWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from protocols.engine import Engine

    OpenWorker = Callable[..., AbstractContextManager[FacadeWorker]]

_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=sorted(_LOOPS))
def loop_thread(request: pytest.FixtureRequest) -> Iterator[LoopThread]:
    """The framework runs uvloop; asyncio is what the contract's words are about."""
    with LoopThread(_LOOPS[request.param]) as loop:
        yield loop
    assert loop.complaints == []


@pytest.fixture
def open_worker(loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> OpenWorker:
    """Make workers; a SIGTERM that one sends to itself is noted instead, as its own handler would."""

    @contextmanager
    def open_one(engine: Engine | None = None, **arrangement: Any) -> Iterator[FacadeWorker]:
        worker, kill = FacadeWorker(loop_thread, engine, **arrangement), os.kill

        def take_signal(pid: int, number: int) -> None:
            if pid != os.getpid():
                # Of a process that another test left to a thread to end: there is one function for all.
                kill(pid, number)
                return
            worker.events.append(f"signal {signal.Signals(number).name}")
            worker.send_signal()

        monkeypatch.setattr("service.death.os.kill", take_signal)
        # No runtime of the framework stands behind these tests whose buffers would have to empty.
        monkeypatch.setattr("service.engine._FLUSH_S", 0.0)
        with ExitStack() as last:
            last.callback(worker.check_closed)
            last.callback(worker.end)
            yield worker

    return open_one
