"""Logits processors of the end-to-end tests, as an operator would bring them along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Forcing:
    """Allows one token until ``times`` are out, then whatever the model likes."""

    def __init__(self, token: int, times: int = 3) -> None:
        if times < 1:
            raise ValueError("times must be at least 1")
        self._token = token
        self._left = times

    def __call__(self, input_ids: Sequence[int], logits: Any) -> None:
        if self._left > 0:
            self._left -= 1
            wanted = logits[self._token].clone()
            logits.fill_(float("-inf"))
            logits[self._token] = wanted


class Broken:
    """Fails at its second token."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, input_ids: Sequence[int], logits: Any) -> None:
        self._calls += 1
        if self._calls == 2:
            raise RuntimeError("a fault of the operator's own code")
