"""Sleep, wake, drain, resume, requests, failures and a signal in any order: what holds after each step."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.maintenance import Rest
from tests.doubles.bridge import LoopThread
from tests.doubles.callers import wire_request
from tests.doubles.maintenance import Fate, SleepyEngine
from tests.service.test_maintenance import check_serving
from tests.service.worker import FacadeWorker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

# A route with its body, a fate of the next calls, or a word.
_BODIES: list[tuple[str, dict[str, Any]]] = [
    ("fall_asleep", {}),
    ("fall_asleep", {"memories": ["kv_cache", "model_weights"], "timeout_s": 0}),
    ("fall_asleep", {"memories": ["model"], "timeout_s": 0}),
    ("wake", {}),
    ("drain", {"timeout_s": 0}),
    ("drain", {}),
    ("resume", {}),
    ("release_memory_occupation", {"timeout_s": 0}),
    ("resume_memory_occupation", {}),
    ("resume_memory_occupation", {"tags": ["kv_cache"]}),
]
_WORDS = ["ask", "finish", "hang up", "let return", "turn"]
_STEPS = st.one_of(st.sampled_from(_BODIES), st.sampled_from(list(Fate)), st.sampled_from(_WORDS))
_SLEEP, _WAKE = _BODIES[0], _BODIES[3]


class Play:
    """One worker, and what was asked of it and is not answered yet."""

    def __init__(self, loop: LoopThread) -> None:
        self.engine = SleepyEngine()
        self.worker = FacadeWorker(loop, self.engine).open()
        self.asked: list[Future[Any]] = []

    def step(self, step: Any) -> None:
        match step:
            case Fate():
                self.engine.maintenance.fate = step
            case (name, body):
                self.asked.append(self.worker.loop.begin(self.worker.facade.engine_control(name, dict(body))))
            case "ask":
                self.worker.ask(wire_request())
            case "finish":
                self.worker.loop.call(self._finish_all)
            case "hang up" if self.asked:
                self.asked[-1].cancel()
            case "let return":
                self.worker.loop.call(self._let_return)
            case _:
                self.worker.loop.run(asyncio.sleep(0.002))
        self.worker.loop.call(self.check)

    def check(self) -> None:
        """In the loop, between two turns of everything."""
        memory, state = self.engine.maintenance, self.worker.facade._controls.sleeper.state
        drain = self.worker.graph.drain.state
        if drain == "serving":
            assert state in {Rest.AWAKE, Rest.PAUSING}
            assert not memory.asleep
        if memory.gone:
            assert drain == "drained"
            assert not self.engine.live
            assert state is not Rest.AWAKE
        if state is Rest.ASLEEP:
            assert not self.engine.live
            assert memory.gone
        if state is Rest.AWAKE:
            assert not memory.asleep

    def calm_down(self) -> None:
        """Everything that hangs comes back, and everybody gets an answer; nobody waits for ever."""
        self.engine.maintenance.fate = Fate.WORKS
        self.worker.until(self._is_calm)
        for answer in self.asked:
            with suppress(Exception, CancelledError):
                answer.result(0)

    def _is_calm(self) -> bool:
        self._let_return()
        self._finish_all()
        state = self.worker.facade._controls.sleeper.state
        is_changing = state in {Rest.PAUSING, Rest.WAKING} or self.engine.maintenance.is_busy
        return not is_changing and all(answer.done() for answer in self.asked)

    def _finish_all(self) -> None:
        for engine_id in tuple(self.engine.live):
            self.engine.finish(engine_id)

    def _let_return(self) -> None:
        """Those that hang now; the next ones hang again."""
        self.engine.maintenance.may_return.set()
        self.engine.maintenance.may_return = asyncio.Event()


@contextmanager
def playing() -> Iterator[Play]:
    """Nothing is left behind, and nothing failed unheard, whatever was played."""
    with pytest.MonkeyPatch.context() as patch, LoopThread(asyncio.new_event_loop) as loop:
        patch.setattr("service.maintenance_call.CALL_S", 0.02)
        patch.setattr("service.maintenance_call._LET_GO_S", 0.005)
        patch.setattr("service.control_drain._SETTLE_S", 0.01)
        patch.setattr("service.engine._FLUSH_S", 0.0)
        # Nobody reads here what is asked for.
        patch.setattr("service.readers.ABORTED_READER_S", 0.01)
        play = Play(loop)
        try:
            yield play
        finally:
            play.worker.end()
            play.worker.check_closed()
    assert loop.complaints == []


@given(st.lists(_STEPS, max_size=16))
@example([Fate.HANGS, _SLEEP, "turn", "hang up", Fate.WORKS, _WAKE, "let return", _WAKE])
@example([_SLEEP, "turn", Fate.HALF, _WAKE, "turn", ("drain", {}), Fate.WORKS, _WAKE, "ask"])
@example(["ask", "turn", _SLEEP, "turn", "finish", "turn", _WAKE, "ask"])
@settings(max_examples=200)
def test_nothing_serves_without_its_memory_and_every_way_back_works(steps: list[Any]) -> None:
    """No memory is gone while somebody is live or admission is open; `wake` and `resume` bring all back."""
    with playing() as play:
        for step in steps:
            play.step(step)
        play.calm_down()
        play.worker.control("wake")
        play.worker.control("resume")
        check_serving(play.worker, play.engine)


@given(st.lists(_STEPS, max_size=10), st.lists(_STEPS, max_size=4))
@example([_SLEEP, "turn"], [_WAKE])
@example([_SLEEP, "turn", Fate.HANGS, _WAKE, "turn"], ["let return", "turn", _WAKE])
@settings(max_examples=150)
def test_a_signal_at_any_moment_ends_the_worker(steps: list[Any], late: list[Any]) -> None:
    """The cleanup returns, the engine is stopped once, and the worker is not listed again."""
    with playing() as play:
        for step in steps:
            play.step(step)
        play.worker.signals._on_signal(signal.SIGTERM, None)
        listed = play.worker.events.count("register")
        for step in late:
            play.step(step)
        play.calm_down()
        play.worker.cleanup()
        assert play.engine.stops == 1
        assert play.worker.events.count("register") == listed
