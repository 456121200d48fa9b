"""An operator's processors that another process can import; and one process that no operator would write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.actors.engines.torch.hostile_processors import BROKEN, Keeping, Temperature

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Broken", "Counting", "Forcing", "Keeping", "Looping", "Temperature"]


class Broken:
    """What fails, by its kind; the kinds themselves cannot be pickled."""

    def __init__(self, kind: str) -> None:
        factory, _ = BROKEN[kind]
        self._inner: Any = factory()

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> object:
        return self._inner(input_ids, logits)


class Counting:
    """Allows one id only: the number of its calls so far."""

    def __init__(self, begin: int = 0) -> None:
        self._calls = begin

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        kept = logits[self._calls].clone()
        logits.fill_(float("-inf"))
        logits[self._calls] = kept
        self._calls += 1


class Forcing:
    """Allows the given ids only."""

    def __init__(self, token_ids: list[int]) -> None:
        self._token_ids = token_ids

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        kept = logits[self._token_ids].clone()
        logits.fill_(float("-inf"))
        logits[self._token_ids] = kept


class Looping:
    """Never comes back."""

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        while True:
            pass
