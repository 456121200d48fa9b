"""The end of a process that can no longer end in order: one line to stderr, and our exit code."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import NoReturn

from service.exit_codes import ExitCode

_STDERR = 2
# Somebody beside stderr who is to know why; must neither wait nor raise.
Tell = Callable[[str], None]


def tell_nobody(_why: str) -> None:
    """A `Tell` for those whom nobody watches."""


def end_now(why: str, tell: Tell = tell_nobody) -> NoReturn:
    """Any thread. Needs neither the loop nor a lock that anybody else holds."""
    try:
        tell(why)
        _say(f"dynamo-actor-worker: {why}; ending now with code {ExitCode.FORCED.value}\n")
    finally:
        # Whatever became of the words: a reader that is gone, a stderr that was closed.
        os._exit(ExitCode.FORCED)


def _say(text: str) -> None:
    """Write to stderr unless that would wait: its reader may be what everybody is waiting for."""
    if select.select([], [_STDERR], [], 0)[1]:
        os.write(_STDERR, text.encode())
