"""What following a grammar may cost its request, in CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from actors.engines.foreign.steering_failed import TooCostly

TOO_COSTLY = "the grammar became too costly to follow"


class Budget:
    """CPU seconds that following a grammar may cost: ``burst_s`` at once, and ``token_s`` for each token.

    In CPU time of the thread that computes, so that a busy machine is not blamed on a grammar.
    """

    def __init__(self, burst_s: float, token_s: float) -> None:
        self._left_s = burst_s
        self._token_s = token_s

    @contextmanager
    def spending(self, clock: Callable[[], float] = time.thread_time) -> Generator[None]:
        """Around the work for one token. Raises TooCostly when the budget is used up.

        clock: CPU seconds of the thread that does the work, if that is not the calling one.
        """
        started_s = clock()
        yield
        self._left_s += self._token_s - (clock() - started_s)
        if self._left_s < 0:
            raise TooCostly(TOO_COSTLY)


def mask_budget() -> Budget:
    """On a side lane. A mask takes 0.1 ms, the first ones up to 10; nobody waits longer than a turn."""
    return Budget(burst_s=0.5, token_s=0.005)


def accept_budget() -> Budget:
    """On a side lane, too: 0.02 ms is usual, 3 with 500 optional properties."""
    return Budget(burst_s=0.03, token_s=0.002)
