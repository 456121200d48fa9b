"""Logits processors as nobody should write them, each named for what it does; and one that is fine."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Temperature:
    """Well-behaved: divides by ``temperature``."""

    def __init__(self, temperature: float = 0.7) -> None:
        if not temperature > 0:
            raise ValueError("temperature must be above 0")
        self._temperature = temperature

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        logits.div_(self._temperature)


class Hanging:
    """Hangs in every call until its class is let go, as on a lock that nobody opens."""

    word = threading.Event()

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        Hanging.word.wait()


class Looping:
    """Never comes back and never sleeps."""

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        while True:
            pass


class Sleeping:
    """Takes its time at every token."""

    def __init__(self, seconds: float = 0.05) -> None:
        self._seconds = seconds

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        time.sleep(self._seconds)


class SlowToMake:
    """Takes its time once."""

    def __init__(self) -> None:
        time.sleep(0.1)

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        logits.mul_(2.0)


class NotMade:
    """Its factory raises."""

    def __init__(self) -> None:
        raise OSError("no such table")

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        return


def _raises(error: type[BaseException]) -> type[Any]:
    class Raising:
        def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
            raise error("with a secret")

    return Raising


def _does(action: Callable[[list[int], Tensor], object]) -> type[Any]:
    class Doing:
        def __call__(self, input_ids: list[int], logits: Tensor) -> object:
            return action(input_ids, logits)

    return Doing


def _writes(value: float) -> type[Any]:
    def write(_input_ids: list[int], logits: Tensor) -> None:
        logits[3] = value

    return _does(write)


def _quietly(action: Callable[[list[int], Tensor], object]) -> type[Any]:
    """Does something that it should not, and returns nothing."""

    def act(input_ids: list[int], logits: Tensor) -> None:
        action(input_ids, logits)

    return _does(act)


class Keeping:
    """Keeps every row and writes into the old ones, too."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        for row in self._rows:
            row[0] = 3.0
        self._rows.append(logits)


# What fails, and what its request is told; LINE stands for a number.
BROKEN: dict[str, tuple[type[Any], str]] = {
    "raising": (_raises(ValueError), "failed (ValueError at hostile_processors.py:LINE)"),
    "exiting": (_raises(SystemExit), "failed (SystemExit at hostile_processors.py:LINE)"),
    "interrupting": (_raises(KeyboardInterrupt), "failed (KeyboardInterrupt at hostile_processors.py:LINE)"),
    "not-made": (NotMade, "failed (OSError at hostile_processors.py:LINE)"),
    "returning": (_does(lambda ids, row: row * 2), "returned a value; it must change the row in place"),
    "nan": (_writes(float("nan")), "wrote NaN or +inf"),
    "infinite": (_writes(float("inf")), "wrote NaN or +inf"),
    "forbidding": (_quietly(lambda ids, row: row.fill_(float("-inf"))), "forbade every token"),
    "growing": (_quietly(lambda ids, row: row.resize_(100_000)), "made another tensor of the row"),
    "shrinking": (_quietly(lambda ids, row: row.resize_(1)), "made another tensor of the row"),
    "turning": (_quietly(lambda ids, row: row.unsqueeze_(0)), "made another tensor of the row"),
    "emptying": (
        _quietly(lambda ids, row: row.untyped_storage().resize_(0)),
        "made another tensor of the row",
    ),
    "exchanging": (
        _quietly(lambda ids, row: setattr(row, "data", torch.zeros(5))),
        "made another tensor of the row",
    ),
    "rewriting": (_quietly(lambda ids, row: ids.append(7)), "changed the token ids"),
    "clearing": (_quietly(lambda ids, row: ids.clear()), "changed the token ids"),
}

# What is odd and harms nobody.
ODD: dict[str, type[Any]] = {
    "keeping": Keeping,
    "threading": _quietly(lambda ids, row: torch.set_num_threads(3)),
    "grading": _quietly(lambda ids, row: row.requires_grad_(True)),
    "enabling": _quietly(lambda ids, row: torch.set_grad_enabled(True)),
    "overwriting": _quietly(lambda ids, row: ids.__setitem__(0, 5)),
}


def without_lines(told: str | None) -> str:
    """What a request was told, as above."""
    return re.sub(r"\.py:\d+", ".py:LINE", told or "nothing")
