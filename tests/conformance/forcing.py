"""A logits processor that leaves one token; importable by name, for engines in other processes."""

from __future__ import annotations

from typing import Any


class Forcing:
    """Keyword only, so that wrong options are found."""

    def __init__(self, *, token: int) -> None:
        self._token = token

    def __call__(self, input_ids: Any, logits: Any) -> None:
        kept = float(logits[self._token])
        logits.fill_(float("-inf"))
        logits[self._token] = kept
