"""Answers tried at random, under masks: one that comes to where no token is allowed shows a dead end.

It proves nothing for those that were not tried. But what a vocabulary cannot say, or a library cannot follow,
is found in no other way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray

from actors.engines.grammars.limits import WALK_S, WALK_TOKENS, WALKS

DEAD_END = "a constraint that the vocabulary can follow to an end"
Bits = NDArray[numpy.uint8]


class Follower(Protocol):
    """One answer's way through a constraint."""

    def allowed(self) -> Bits:
        """One for each token that may come next, else zero. Raises DeadEnd where the library fails."""
        ...

    def take(self, token: int) -> bool:
        """Whether the answer goes on behind this token, which was allowed. Raises DeadEnd for an error."""
        ...


class DeadEnd(Exception):
    """No token may come next, and the answer has not ended."""


def walk(begin: Callable[[], Follower], ends: Iterable[int]) -> None:
    """Some walks: by the lowest tokens, by the highest, and at random, but each time in the same way.

    Until their time is over: it counts the calling thread's computing. Raises DeadEnd.
    """
    until_s = time.thread_time() + WALK_S
    stops = list(ends)
    # Nothing is secret here; and a constraint is refused each time or never.
    chance = random.Random(0)  # noqa: S311
    for number in range(WALKS):
        follower = begin()
        for _ in range(WALK_TOKENS):
            if time.thread_time() > until_s:
                return
            token = _next(follower.allowed(), stops, number, chance)
            if token is None or not follower.take(token):
                break


def _next(allowed: Bits, stops: list[int], number: int, chance: random.Random) -> int | None:
    """None where only an end may come."""
    if not allowed.any():
        raise DeadEnd
    allowed[stops] = 0
    tokens: Any = allowed.nonzero()[0]
    if not len(tokens):
        return None
    if number < 2:
        return int(tokens[-number])
    return int(tokens[chance.randrange(len(tokens))])


def bits_of(mask: NDArray[numpy.int32], width: int) -> Bits:
    """One for each of ``width`` tokens; the mask has one bit for each, and what comes after means nothing."""
    return numpy.unpackbits(mask.view(numpy.uint8), count=width, bitorder="little")


def ends_refusal(name: str) -> str:
    """What would be allowed. name: of a rule that never ends, or of a word, as it is written."""
    return f"a constraint all of whose parts can come to an end ({name[:60]} never does)"


class LlguidanceFollower:
    """Implements `Follower` with a copy of a matcher of llguidance, ``width`` tokens wide."""

    def __init__(self, matcher: Any, width: int) -> None:
        self._matcher = matcher.deep_copy()
        self._mask = numpy.zeros(-(-width // 32), dtype=numpy.int32)
        self._width = width

    def allowed(self) -> Bits:
        self._mask[:] = 0
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        if self._matcher.is_error():
            raise DeadEnd
        return bits_of(self._mask, self._width)

    def take(self, token: int) -> bool:
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise DeadEnd
        return not self._matcher.is_stopped()
