"""Judges that never come to a verdict, for the process for trials: as compilers that hang."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.engines.grammars.vocabulary import Vocabulary
    from protocols.spec import Guided

HOME = "tests.actors.engines.grammars.stuck_judges"
# What they get through.
GOOD = "good"


def _judge(hang: Callable[[], object]) -> Callable[[Guided], object]:
    def judge(guided: Guided) -> object:
        return object() if guided.constraint == GOOD else hang()

    return judge


def computing(_vocabulary: Vocabulary) -> Callable[[Guided], object]:
    """Inside of a library, which gives no other thread of the process a turn."""
    return _judge(lambda: re.match(r"(a*)*b", "a" * 60))


def waiting(_vocabulary: Vocabulary) -> Callable[[Guided], object]:
    """For nothing, and without computing."""
    return _judge(lambda: time.sleep(3600))


def growing(_vocabulary: Vocabulary) -> Callable[[Guided], object]:
    """Until there is no more."""

    def grow() -> object:
        kept: list[bytes] = []
        while True:
            kept.append(b"x" * 2**24)

    return _judge(grow)
