"""Promises of the errors: fields for programs, one clear line for people, nothing endless in it."""

from __future__ import annotations

import pytest

from protocols.errors import (
    DeadlineExceeded,
    EngineDead,
    EngineError,
    EngineShutdown,
    EngineStartError,
    GenerationFailed,
    InternalError,
    InvalidRequest,
    Overloaded,
    ReaderStalled,
    RequestError,
    ServiceError,
    StartStopped,
    shorten,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidRequest("a.b", 7, "1 to 3"), "a.b: 7 is not accepted: 1 to 3"),
        (
            Overloaded("max_live", "8 requests are live (--max-live)", 2.5),
            "overloaded (max_live): 8 requests are live (--max-live); retry after 2.5 s",
        ),
        (DeadlineExceeded(1.5), "the deadline of 1.5 s passed"),
        (ReaderStalled(30.0), "nothing was read for 30 s"),
        (EngineStartError("no such model.", "Use --model."), "no such model. Use --model."),
        (EngineStartError("no such model."), "no such model."),
    ],
)
def test_the_text_says_what_and_what_to_do(error: Exception, text: str) -> None:
    """One line each."""
    assert str(error) == text


def test_whose_fault_it_is_can_be_asked() -> None:
    """The facade maps families, not names."""
    for caller in (InvalidRequest("a", 1, "b"), Overloaded("a", "b"), DeadlineExceeded(1), ReaderStalled(1)):
        assert isinstance(caller, RequestError)
    assert issubclass(GenerationFailed, EngineError)
    assert issubclass(EngineDead, EngineShutdown)
    for kind in (RequestError, EngineError, EngineShutdown, InternalError, StartStopped, EngineStartError):
        assert issubclass(kind, ServiceError)
    assert not issubclass(EngineShutdown, RequestError | EngineError)


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), ("x", "'x'"), (None, "None"), ([1, 2], "[1, 2]"), ({"a": 1}, "{'a': 1}"), (0.5, "0.5")],
)
def test_a_small_value_is_shown_as_it_is(value: object, text: str) -> None:
    """So that its caller recognises it."""
    assert shorten(value) == text


def test_every_value_has_a_short_text() -> None:
    """Long, deep, or not writable at all."""
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value in (
        "x" * 10**6,
        list(range(10**5)),
        deep,
        10**5000,
        b"x" * 1000,
        object(),
        {"k" * 1000: "v" * 1000},
    ):
        assert len(shorten(value)) <= 80
