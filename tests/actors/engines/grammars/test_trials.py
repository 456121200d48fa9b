"""Constraints are tried in another process: this one lives, knows what they cost, and goes on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actors.engines.grammars import trials as trials_module
from actors.engines.grammars.limits import MOST_GRAMMAR_BYTES
from actors.engines.grammars.trial_child import Court
from actors.engines.grammars.trials import LLGUIDANCE, Trials
from protocols.bounds import Bound
from protocols.errors import InvalidRequest, Overloaded
from protocols.spec import Guided, GuidedKind
from tests.actors.engines.grammars.deadly import GOOD, LARGE, OVERFLOWING, SLOW
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.actors.engines.grammars.world import Guide

PATIENT_S = 15.0
# Of this process, whatever a constraint does in the other one.
MOST_GROWTH_BYTES = 16 * 2**20


@contextmanager
def kept(guide: Guide, trials: Trials | None = None) -> Generator[Trials]:
    """Trials, and their keeper; nothing is left of them afterwards."""
    trials = trials or Trials()
    keeper = threading.Thread(target=trials.keep, args=(guide.vocabulary,))
    keeper.start()
    try:
        yield trials
    finally:
        pid = trials.pid
        trials.close()
        keeper.join(PATIENT_S)
    assert not keeper.is_alive()
    assert pid is None or not psutil.pid_exists(pid)


@pytest.mark.parametrize("deadly", [OVERFLOWING, SLOW], ids=["overflows the stack", "takes for ever"])
def test_a_deadly_constraint_is_refused(guide: Guide, deadly: Guided) -> None:
    """By name; this process does not grow, and the next constraint is tried by another process."""
    told = RecordingTelemetry()
    with kept(guide, Trials(told.bound_reached)) as trials:
        trials.check(GOOD)
        assert told.bounds == {}
        first, before = trials.pid, psutil.Process().memory_info().rss
        with pytest.raises(InvalidRequest, match="costs less than is allowed") as refused:
            trials.check(deadly)
        assert refused.value.field == "sampling_options.guided_decoding.json"
        assert told.bounds == {Bound.CONSTRAINT_COST: 1}
        assert trials.check(GOOD) > 0
        assert psutil.Process().memory_info().rss < before + MOST_GROWTH_BYTES
        assert first is not None
        assert trials.pid not in {first, None}
        assert not psutil.pid_exists(first)


def test_the_time_of_a_court(guide: Guide) -> None:
    """What takes more computing than this court allows is refused, though it came through."""
    with kept(guide, Trials(court=Court(LLGUIDANCE.judge, cpu_s=1e-9))) as trials:
        with pytest.raises(InvalidRequest, match="compiling it takes more than 1e-09 s"):
            trials.check(GOOD)
        assert trials.pid is not None


def test_a_large_grammar_is_refused(guide: Guide) -> None:
    """For the bytes that it would keep; the process stays."""
    told = RecordingTelemetry()
    with kept(guide, Trials(told.bound_reached)) as trials:
        trials.check(GOOD)
        pid = trials.pid
        with pytest.raises(
            InvalidRequest, match=rf"its grammar takes \d+ MiB, over {MOST_GRAMMAR_BYTES >> 20}"
        ):
            trials.check(LARGE)
        assert trials.pid == pid
        assert told.bounds == {Bound.CONSTRAINT_COST: 1}


def test_what_is_large_is_told(guide: Guide) -> None:
    """The bytes of a grammar are those of its automaton, whatever was tried before."""
    with kept(guide) as trials:
        trials.check(GOOD)
        sizes = [
            trials.check(Guided(kind=GuidedKind.JSON, constraint={"type": "integer", "multipleOf": number}))
            for number in (9_973, 97, 9_973)
        ]
    assert sizes[1] < 2**20 < sizes[0]
    assert sizes[2] == pytest.approx(sizes[0], rel=0.1)


BAD: dict[str, tuple[str, Any]] = {
    "an open class": ("regex", "[a-"),
    "no text": ("regex", 3),
    "an unknown keyword": ("json", {"properties": {"é": {"nullable": True}}}),
    "no schema": ("json", "{not json"),
    "no choices": ("choice", ["", "\ud83d\ude00"]),
    "no rule": ("grammar", "once upon a time"),
    "an unknown format": ("structural_tag", {"type": "structural_tag", "format": {"type": "dispatch"}}),
    "too long": ("regex", "a" * 70_000),
    "no JSON": ("json", {"enum": [object()]}),
    "half a character": ("regex", "\ud83d"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal_is_the_same_here_and_there(guide: Guide, name: str) -> None:
    """Field, value and reason are what they would be if it were compiled in this process."""
    kind, constraint = BAD[name]
    with pytest.raises(InvalidRequest) as here:
        guide.compile(kind, constraint)
    with kept(guide) as trials, pytest.raises(InvalidRequest) as there:
        trials.check(Guided(kind=GuidedKind(kind), constraint=constraint))
    assert str(there.value) == str(here.value)


def test_killed_while_idle(guide: Guide) -> None:
    """Another process takes its place, and nobody is blamed."""
    with kept(guide) as trials:
        trials.check(GOOD)
        pid = trials.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert trials.check(GOOD) > 0
        assert trials.pid not in {pid, None}


def test_who_waits_behind_a_deadly_one_is_served(guide: Guide) -> None:
    """Its own constraint was not looked at when the process died."""
    sizes: list[int] = []
    with kept(guide) as trials:
        trials.check(GOOD)
        threads = [threading.Thread(target=lambda: sizes.append(trials.check(GOOD))) for _ in range(3)]
        for thread in threads:
            thread.start()
        with pytest.raises(InvalidRequest):
            trials.check(OVERFLOWING)
        for thread in threads:
            thread.join(PATIENT_S)
    assert len(sizes) == 3


def test_a_process_that_cannot_be_started(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are told so at once, as something that may pass; closing does not wait for the next try."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with kept(guide) as trials, pytest.raises(Overloaded) as overloaded:
        trials.check(GOOD)
    assert overloaded.value.reason == "preparing_full"
    assert overloaded.value.limit == "the process that tries constraints does not start (FileNotFoundError)"


def test_a_process_that_does_not_come_up(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends before it is ready counts as one that cannot be started."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with kept(guide) as trials, pytest.raises(Overloaded, match="does not start"):
        trials.check(GOOD)


def test_an_engine_that_loads_for_long(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes between making and keeping is not the process's: it gets all of its time to start."""
    trials, real = Trials(), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 1e4)
    with kept(guide, trials):
        assert trials.check(GOOD) > 0


def test_a_process_that_starts_for_long(guide: Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it longer than is allowed, counted from its start."""
    monkeypatch.setattr(trials_module, "READY_S", 0.0)
    with kept(guide) as trials, pytest.raises(Overloaded, match="is still starting"):
        trials.check(GOOD)


def test_closing_at_any_time(guide: Guide) -> None:
    """Before the process is up, and twice: the keeper ends, and what comes later is an overload."""
    with kept(guide) as trials:
        trials.close()
        with pytest.raises(Overloaded):
            trials.check(GOOD)
