"""What differs between the versions of ai-dynamo as the tests see it: one table, measured on each.

A version without a row is not measured; its tests fail with a KeyError instead of guessing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True)
class Expected:
    """One version. Every number is an HTTP status, or the ``code`` of an error event in a stream.

    deadline: what the worker raises when a deadline has passed; deadline_unary: what becomes of it once
    there were tokens. answers_while_stopping: whether control routes answer after a signal.
    leaves_by_itself: whether a frontend whose stream to a worker breaks takes the request to another one
    without being told: for the first worker its caller has left.
    """

    refused_completion: int
    refused_event: int
    overloaded_event: int
    deadline: int
    deadline_unary: int
    deadline_event: int
    healthy_while_stopping: int
    answers_while_stopping: bool
    leaves_by_itself: bool


_TABLE = {
    "1.4": Expected(
        refused_completion=500,
        refused_event=500,
        overloaded_event=500,
        deadline=504,
        deadline_unary=500,
        deadline_event=500,
        healthy_while_stopping=200,
        answers_while_stopping=True,
        leaves_by_itself=False,
    ),
    "1.6": Expected(
        refused_completion=400,
        refused_event=400,
        overloaded_event=429,
        deadline=499,
        deadline_unary=499,
        deadline_event=499,
        healthy_while_stopping=503,
        answers_while_stopping=False,
        leaves_by_itself=True,
    ),
}


def expected() -> Expected:
    """Of the installed version."""
    major, minor, *_ = metadata.version("ai-dynamo").split(".")
    return _TABLE[f"{major}.{minor}"]
