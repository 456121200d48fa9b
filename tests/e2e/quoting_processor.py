"""A logits processor of an operator that quotes, in its fault, everything it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Quoting:
    """Fails at its second token."""

    def __init__(self, note: str = "") -> None:
        self._note = note
        self._calls = 0

    def __call__(self, input_ids: Sequence[int], logits: Any) -> None:
        self._calls += 1
        if self._calls == 2:
            raise RuntimeError(f"{self._note}: {list(input_ids)} gave {logits}")
