"""The control route ``log_level``: how much this worker writes, for as long as somebody looks.

``{"level": "debug", "target": "actor.request", "for_s": 600}``; without a level it only says what holds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping
from typing import Any

from protocols.errors import InvalidRequest
from service.control_body import check_keys
from service.telemetry.levels import LEVELS, TARGETS, Levels, is_below, known_targets, word_of
from service.telemetry.logs import get_logger

# As DYN_LOG had it at the start.
CONFIGURED = "configured"
LONGEST_S = 86_400.0
_KEYS = ("level", "target", "for_s")
# Python's word for it.
_ALIASES = {"warning": "warn"}
_NAME = "service.log_level"


class LogLevelRoute:
    """Belongs to the event loop, whose timer takes levels back."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._levels = Levels(environ)
        self._log = get_logger(_NAME)
        # Of each target that is changed for a time: until when, monotonic seconds. One timer for the next.
        self._until: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def handle(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change what the body says, and tell what holds now. Raises InvalidRequest; then nothing changed."""
        check_keys(body, _KEYS)
        targets = _targets_of(body.get("target"))
        level = _level_of(body.get("level"))
        for_s = _seconds_of(body.get("for_s"), level)
        if level == CONFIGURED:
            self._restore([name for name in self._levels.changed if any(is_below(name, t) for t in targets)])
        elif level is not None:
            self._change(targets, level, for_s)
        return {"targets": [self._entry(name) for name in self._told()]}

    def _change(self, targets: Collection[str], level: str, for_s: float | None) -> None:
        until_s = None if for_s is None else time.monotonic() + for_s
        for target in targets:
            self._levels.change(target, LEVELS[level])
            self._until.pop(target, None)
            if until_s is not None:
                self._until[target] = until_s
        self._say(level, targets, for_s)
        self._set_timer()

    def _restore(self, targets: Collection[str]) -> None:
        for target in targets:
            self._levels.restore(target)
            self._until.pop(target, None)
        if targets:
            self._say(CONFIGURED, targets, None)
        self._set_timer()

    def _say(self, level: str, targets: Collection[str], for_s: float | None) -> None:
        """At a level of its own, each time: whoever silences a worker, or wakes it, is on record."""
        logging.getLogger(_NAME).setLevel(logging.WARNING)
        self._log.warning("log.level", lowest=level, targets=",".join(sorted(targets)), for_s=for_s)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        next_s = min(self._until.values(), default=None)
        if next_s is None:
            self._timer = None
            return
        self._timer = asyncio.get_running_loop().call_later(next_s - time.monotonic(), self._take_back)

    def _take_back(self) -> None:
        """What has had its time."""
        now_s = time.monotonic()
        self._restore([target for target, until_s in self._until.items() if until_s <= now_s])

    def _told(self) -> list[str]:
        return list(dict.fromkeys((*TARGETS, *sorted(self._levels.changed))))

    def _entry(self, target: str) -> dict[str, Any]:
        until_s = self._until.get(target)
        return {
            "target": target,
            "level": word_of(self._levels.lowest(target)),
            "configured": word_of(self._levels.configured(target)),
            "left_s": None if until_s is None else round(until_s - time.monotonic(), 3),
        }


def folded(level: str) -> str:
    """The framework's word for what may be written otherwise."""
    word = level.lower()
    return _ALIASES.get(word, word)


def _targets_of(given: object) -> tuple[str, ...]:
    """All of ours, or the one that was named."""
    if given is None:
        return TARGETS
    known = known_targets()
    if not isinstance(given, str) or given not in known:
        raise InvalidRequest("target", given, f"one of {', '.join(known)}")
    return (given,)


def _level_of(given: object) -> str | None:
    allowed = (*LEVELS, CONFIGURED)
    if given is None:
        return None
    if not isinstance(given, str) or (level := folded(given)) not in allowed:
        raise InvalidRequest("level", given, f"one of {', '.join(allowed)}")
    return level


def _seconds_of(given: object, level: str | None) -> float | None:
    if given is None:
        return None
    if level in (None, CONFIGURED):
        raise InvalidRequest("for_s", given, f"beside a level other than {CONFIGURED}")
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= LONGEST_S:
        raise InvalidRequest("for_s", given, f"seconds above 0, at most {LONGEST_S:.0f}")
    return float(given)
