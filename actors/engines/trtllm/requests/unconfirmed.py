"""Aborts of requests of which the engine has said nothing yet: it may never say that it has ended them.

What it has begun it ends within an iteration, and says so. What waits in its own queue it drops without a
word (``PyExecutor._handle_canceled_requests``), so it is known by the silence. To take a request for dropped
too early does little harm: its last word is heard by nobody, and its place is free a little later than told.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from protocols.steps import EngineId

# Results of one other request: as many iterations have passed, and some may have been on their way.
_ITERATIONS = 8
# Seconds: the most that is waited where nobody else says anything.
_MOST_S = 2.0


@dataclass(slots=True)
class _Silence:
    """timer: its end. others: results of other requests since."""

    timer: asyncio.TimerHandle
    others: Counter[EngineId] = field(default_factory=Counter[EngineId])


class Unconfirmed:
    """Event loop only. drop: called once for each request that counts as dropped."""

    def __init__(self, drop: Callable[[EngineId], None]) -> None:
        self._drop = drop
        self._silent: dict[EngineId, _Silence] = {}

    def asked(self, engine_id: EngineId) -> None:
        """The engine was told to end this one."""
        timer = asyncio.get_running_loop().call_later(_MOST_S, self._end, engine_id)
        self._silent[engine_id] = _Silence(timer)

    def heard(self, engine_id: EngineId) -> None:
        """A result of some request has come."""
        if not self._silent:
            return
        self.forget(engine_id)
        for silent, silence in list(self._silent.items()):
            silence.others[engine_id] += 1
            if silence.others[engine_id] >= _ITERATIONS:
                self._end(silent)

    def forget(self, engine_id: EngineId) -> None:
        """The engine has said something of it, or nobody asks any more. Unknown ids are ignored."""
        silence = self._silent.pop(engine_id, None)
        if silence is not None:
            silence.timer.cancel()

    def _end(self, engine_id: EngineId) -> None:
        self.forget(engine_id)
        self._drop(engine_id)
