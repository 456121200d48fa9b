"""Tokens are noted as the simple call does it, at the grammar's expense and not at the interpreter's."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.foreign.steering_failed import SteeringFailed
from actors.engines.torch.grammars.budget import TOO_COSTLY, Budget
from actors.engines.torch.grammars.noting import note_token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.actors.engines.grammars.world import Guide

# A grammar that takes milliseconds for its next token, which is a comma.
WIDE = {"type": "object", "properties": {f"p{place}": {"type": "integer"} for place in range(500)}}
BEGUN = '{"p0":1'


def costly(guide: Guide, copies: int) -> list[Any]:
    """Matchers of llguidance's, in front of the comma."""
    state: Any = guide.compile("json", WIDE).new_state()
    for token in guide.ids(BEGUN):
        state.fill_mask()
        state.accept(token)
    state.fill_mask()
    return [state._matcher.deep_copy() for _ in range(copies)]


def note(guide: Guide, matcher: Any, token: int, budget: Budget) -> None:
    note_token(matcher, token, guide.vocabulary.library, budget)


def test_it_is_the_simple_call(guide: Guide) -> None:
    """The same tokens are let through next; a token that does not fit is an error of the grammar."""
    first, second, third = costly(guide, 3)
    (comma,) = guide.ids(",")
    note(guide, first, comma, Budget(1.0, 1.0))
    second.consume_token(comma)
    assert first.compute_bitmask() == second.compute_bitmask()
    note(guide, third, guide.ids("x")[0], Budget(1.0, 1.0))
    assert third.is_error()
    assert not first.is_error()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells a thread's time")
def test_what_it_costs_is_charged(guide: Guide) -> None:
    """Of the thread that did the work, which is not the one that called."""
    (matcher,) = costly(guide, 1)
    with pytest.raises(SteeringFailed, match=TOO_COSTLY):
        note(guide, matcher, guide.ids(",")[0], Budget(burst_s=0.0005, token_s=0.0))


@pytest.fixture
def turns_that_nobody_takes() -> Iterator[None]:
    """The interpreter changes hands only where somebody lets go of it."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("turns_that_nobody_takes")
def test_the_interpreter_is_free_meanwhile(guide: Guide) -> None:
    """Another thread gets on while one grammar works at one token."""
    matchers, at_work = costly(guide, 100), list[int]()
    (comma,) = guide.ids(",")

    def go() -> None:
        for matcher in matchers:
            at_work.append(1)
            note(guide, matcher, comma, Budget(1.0, 1.0))
            at_work.pop()

    thread, seen = threading.Thread(target=go), 0
    thread.start()
    while thread.is_alive():
        seen += len(at_work)
        # Not a wait: here this thread lets go of the interpreter.
        time.sleep(0)
    assert seen > 0
