"""Foreign work that a request waits for: how long it may take, and what is said when it takes longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from actors.engines.grammars.limits import MOST_STUCK, PREPARE_S
from actors.engines.impatience import ImpatientThreads, TookTooLong, TooManyStuck
from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.errors import InvalidRequest, Overloaded

T = TypeVar("T")


class LimitedWork:
    """Of one kind, so that what is stuck holds up its like only. Event loop.

    name: of its threads. on_bound: told of work that takes too long.
    """

    def __init__(self, name: str, on_bound: OnBound = ignore_bound) -> None:
        self._threads = ImpatientThreads(name, MOST_STUCK)
        self._on_bound = on_bound

    async def run(self, work: Callable[[], T], too_long: InvalidRequest, limit_s: float | None = None) -> T:
        """What the work returns or raises, or ``too_long``. Raises Overloaded when too many are stuck.

        limit_s: instead of `PREPARE_S`.
        """
        try:
            return await self._threads.run(work, PREPARE_S if limit_s is None else limit_s)
        except TookTooLong:
            self._on_bound(Bound.PREPARING_TIME)
            raise too_long from None
        except TooManyStuck:
            raise Overloaded(
                "preparing_full", f"{MOST_STUCK} grammars or logits processors are taking too long already"
            ) from None
