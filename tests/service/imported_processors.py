"""Modules of an operator, as ``--logits-processor`` may name them: good, wrong, and not what they seem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NOT_CALLABLE = 3


class Banning:
    """Forbids token ids. ``token_ids`` belongs to the instance, which changes it."""

    def __init__(self, token_ids: list[int], strength: float = 1.0) -> None:
        if strength < 0:
            raise ValueError("strength must not be negative")
        self.token_ids = token_ids
        self.strength = strength
        token_ids.append(0)

    def __call__(self, input_ids: Sequence[int], logits: Any) -> None:
        logits[self.token_ids] -= self.strength

    @classmethod
    def softly(cls, token_ids: list[int] | None = None) -> Banning:
        """A factory that needs nothing."""
        return cls(token_ids or [], 0.5)


def no_processor() -> int:
    """Makes something that cannot be called."""
    return 3
