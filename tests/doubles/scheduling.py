"""Trio's order of tasks, made repeatable: the one place that reaches into trio for it.

Trio shuffles every batch of runnable tasks on purpose. Its own Hypothesis plugin makes the batches
ordered before the shuffle and hands the generator that shuffles them to Hypothesis; trio's own test
of determinism does the same two things by hand, and so do we, because a plain test has no Hypothesis
around it and an explicit example must carry its seed. No public name exists for either.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio
import trio._core._run as scheduler
from trio.testing import MockClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


def _allow_determinism(is_allowed: bool) -> None:
    # trio marks the switch as final, and looks at it before every batch of tasks all the same.
    scheduler.__dict__["_ALLOW_DETERMINISTIC_SCHEDULING"] = is_allowed


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """Inside, tasks that could run in any order run in the order of this seed."""
    was_deterministic, state = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    _allow_determinism(True)
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        _allow_determinism(was_deterministic)
        scheduler._r.setstate(state)


def run_seeded(main: Callable[..., Awaitable[Any]], *args: Any, seed: int = 0) -> Any:
    """Run a coroutine function on trio's fake clock, hours in milliseconds, in the order of a seed."""
    with seeded_scheduler(seed):
        return trio.run(main, *args, clock=MockClock(autojump_threshold=0))
