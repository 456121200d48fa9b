"""Constraints are tried in another process before they are compiled in this one.

What a constraint costs is known only when it has been paid, and its compiler may overflow the stack of
whoever calls it: that would be the end of the worker. So a process that may die does it first.
"""

from __future__ import annotations

import logging
import math
import threading
import time

from actors.engines.grammars.limits import (
    MOST_GRAMMAR_BYTES,
    PREPARE_S,
    READY_S,
    field_of,
    text_of,
)
from actors.engines.grammars.trial_child import Court, NoTrial, TrialChild, TrialFailed
from actors.engines.grammars.vocabulary import Vocabulary
from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.errors import InvalidRequest, Overloaded
from protocols.spec import Guided
from protocols.strict_json import read_json

# Seconds between attempts to start a process that did not come up.
_RETRY_S = 10.0
_TOO_COSTLY = "a constraint that costs less than is allowed"
LLGUIDANCE = Court("actors.engines.grammars.building:llguidance_judge")
"""For an engine that obeys constraints by llguidance."""

_log = logging.getLogger(__name__)


class Trials:
    """Keeps one process, and starts another when it ends. Any thread, but never the event loop's.

    on_bound: told of constraints that cost more than is allowed. court: what tries them.
    """

    def __init__(self, on_bound: OnBound = ignore_bound, court: Court = LLGUIDANCE) -> None:
        self._on_bound = on_bound
        self._court = court
        self._changed = threading.Condition()
        self._child: TrialChild | None = None
        # Why there is none, where it could not be started; since when one is being started.
        self._reason = ""
        self._since_s = math.inf
        self._is_closed = False

    def keep(self, vocabulary: Vocabulary) -> None:
        """A thread of its own: start the process, and again whenever it has ended, until `close`."""
        with self._changed:
            self._since_s = time.monotonic()
        while not self._is_closed:
            try:
                child = TrialChild(vocabulary, self._court)
            except Exception as exc:
                # Whatever it was: guided requests hear of it, and the engine serves on.
                self._failed(f"the process that tries constraints does not start ({type(exc).__name__})")
                continue
            self._began(child)
            code = child.wait()
            self._ended(child)
            if not self._is_closed:
                _log.info(
                    "the process that tries constraints ended with code %d; another one is started", code
                )

    def check(self, guided: Guided) -> int:
        """The bytes that its grammar takes. Takes seconds, but always comes back.

        Raises InvalidRequest, as its judge does and for what costs too much; Overloaded while no
        process can be had.
        """
        text_of(guided)
        request = {"kind": guided.kind.value, "constraint": guided.constraint}
        until_s = time.monotonic() + READY_S
        while True:
            child = self._ready(until_s)
            try:
                return self._judge(guided, child.try_out(request, PREPARE_S))
            except TrialFailed:
                self._discard(child)
                raise self._too_costly(guided, "it was too much for a trial") from None
            except NoTrial:
                # It ended by itself, or of another constraint.
                self._discard(child)

    def _judge(self, guided: Guided, verdict: dict[str, object]) -> int:
        match verdict:
            case {"kept_bytes": int(kept), "cpu_s": float(cpu_s)}:
                if kept > MOST_GRAMMAR_BYTES:
                    most = MOST_GRAMMAR_BYTES // 2**20
                    raise self._too_costly(guided, f"its grammar takes {kept // 2**20} MiB, over {most}")
                if cpu_s > self._court.cpu_s:
                    raise self._too_costly(guided, f"compiling it takes more than {self._court.cpu_s:g} s")
                return max(kept, 0)
            case {"refused": [str(field), str(shown), str(allowed)]}:
                raise InvalidRequest(field, _Shown(shown), allowed)
            case {"failed": str(name)}:
                raise _refusal(guided, f"what can be followed ({name})")
            case _:
                raise self._too_costly(guided, "its trial gave no verdict")

    def _too_costly(self, guided: Guided, why: str) -> InvalidRequest:
        self._on_bound(Bound.CONSTRAINT_COST)
        return _refusal(guided, f"{_TOO_COSTLY} ({why})")

    def close(self) -> None:
        """The process ends at once. Event loop, too. Idempotent."""
        with self._changed:
            self._is_closed = True
            if self._child is not None:
                self._child.kill()
            self._changed.notify_all()

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one that can be used."""
        with self._changed:
            return None if self._child is None else self._child.pid

    def _began(self, child: TrialChild) -> None:
        with self._changed:
            self._child, self._reason = child, ""
            if self._is_closed:
                child.kill()
            self._changed.notify_all()

    def _failed(self, reason: str) -> None:
        """Say so, and wait before the next attempt."""
        with self._changed:
            self._reason = reason
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed, _RETRY_S)
            self._since_s = time.monotonic()

    def _ended(self, child: TrialChild) -> None:
        with self._changed:
            if self._child is child:
                self._child, self._since_s = None, time.monotonic()

    def _discard(self, child: TrialChild) -> None:
        child.kill()
        self._ended(child)

    def _ready(self, until_s: float) -> TrialChild:
        """The process. Raises Overloaded at once when it has been starting for too long already."""
        with self._changed:
            until_s = min(until_s, self._since_s + READY_S)
            left_s = max(0.0, until_s - time.monotonic())
            self._changed.wait_for(lambda: self._child or self._reason or self._is_closed, left_s)
            if self._child is not None and not self._is_closed:
                return self._child
            reason = self._reason or "the process that tries constraints is still starting"
            raise Overloaded("preparing_full", reason, _RETRY_S if self._reason else 1.0)


def _refusal(guided: Guided, allowed: str) -> InvalidRequest:
    return InvalidRequest(field_of(guided.kind), guided.constraint, allowed)


def as_tried(guided: Guided) -> object:
    """The constraint as the other process read it: with nothing in it that only this one could know."""
    return guided.constraint if isinstance(guided.constraint, str) else read_json(text_of(guided))


class _Shown(str):
    """A value that was shortened already."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
