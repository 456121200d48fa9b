"""Logits processors: code of the operator that changes one row of logits before a token is chosen.

The contract is Dynamo's ``BaseLogitsProcessor``: called with the ids so far and the row, changes the
row in place, returns nothing. An instance belongs to one choice of one request and may keep a state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from actors.engines.torch.steering_failed import SteeringFailed
from protocols.spec import ProcessorEntry


class LogitsProcessor(Protocol):
    """An instance, as its factory makes it."""

    def __call__(self, input_ids: Sequence[int], logits: Tensor, /) -> None:
        """``logits``: ``[vocabulary]``, float32. ``input_ids``: prompt and output so far."""
        ...


Factory = Callable[..., LogitsProcessor]
"""Makes an instance from keyword arguments. Raises for options it does not accept."""


class Processor:
    """One instance at work, and its price. Made and called on a side lane."""

    def __init__(self, entry: ProcessorEntry, factory: Factory) -> None:
        self.name = entry.name
        self._entry = entry
        self._factory = factory
        self._instance: LogitsProcessor | None = None
        # Not yet reported: calls, and seconds they took.
        self._calls = 0
        self._seconds = 0.0

    def change(self, row: Tensor, tokens: list[int]) -> None:
        """Change the row ``[vocabulary]`` in place. Raises SteeringFailed, which names the processor."""
        started_s = time.perf_counter()
        try:
            if self._instance is None:
                self._instance = self._factory(**self._entry.options)
            answer: object = self._instance(tokens, row)
        except Exception as exc:
            raise SteeringFailed(f"{self._title} failed ({type(exc).__name__})") from exc
        finally:
            self._calls += 1
            self._seconds += time.perf_counter() - started_s
        if answer is not None:
            raise SteeringFailed(f"{self._title} returned a value; it must change the row in place")
        if not bool(torch.all(row < float("inf"))):
            # NaN compares as false, too.
            raise SteeringFailed(f"{self._title} wrote NaN or +inf")

    def take_use(self) -> tuple[int, float]:
        """Calls and seconds since the last time."""
        use = self._calls, self._seconds
        self._calls, self._seconds = 0, 0.0
        return use

    @property
    def _title(self) -> str:
        return f"logits processor {self.name!r}"


def processors_of(entries: tuple[ProcessorEntry, ...], factories: Mapping[str, Factory]) -> list[Processor]:
    """Fresh ones for one choice, in the order of the entries."""
    return [Processor(entry, factories[entry.name]) for entry in entries]

