"""Waiting for what must come, with bounded patience."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.stacks import Worker

PATIENCE_S = 60.0


def wait_until(
    is_so: Callable[[], object],
    what: str | Callable[[], object],
    timeout_s: float = PATIENCE_S,
    *,
    every_s: float = 0.02,
) -> float:
    """When it came true, monotonic seconds. what: says what never came; a function is asked then."""
    give_up_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < give_up_s, what() if callable(what) else what
        time.sleep(every_s)
    return time.monotonic()


def wait_log(worker: Worker, text: str, timeout_s: float = PATIENCE_S) -> None:
    """Until the worker, which must live, has said this."""

    def has_said() -> bool:
        # In this order: what it said last counts, also when it is gone by now.
        code, log = worker.child.exit_code, worker.log()
        assert code is None or text in log, (code, log)
        return text in log

    wait_until(has_said, worker.log, timeout_s)
