"""Logits processors: code of the operator that changes one row of logits before a token is chosen.

The contract is Dynamo's ``BaseLogitsProcessor``: called with the ids so far and the row, changes the
row in place, returns nothing. An instance belongs to one choice of one request and may keep a state.
"""

from __future__ import annotations

import copy
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from actors.engines.foreign.side_job import Interrupted
from actors.engines.foreign.steering_failed import SteeringFailed
from protocols.spec import ProcessorEntry


class LogitsProcessor(Protocol):
    """An instance, as its factory makes it."""

    def __call__(self, input_ids: Sequence[int], logits: Tensor, /) -> None:
        """``logits``: ``[vocabulary]``, float32. ``input_ids``: prompt and output so far."""
        ...


T = TypeVar("T")

Factory = Callable[..., LogitsProcessor]
"""Makes an instance from keyword arguments. Raises for options it does not accept."""


class Processor:
    """One instance at work, and its price. Made and called on a side lane, by one thread at a time."""

    def __init__(self, entry: ProcessorEntry, factory: Factory) -> None:
        self.name = entry.name
        self._entry = entry
        self._factory = factory
        self._instance: LogitsProcessor | None = None
        # Calls and the seconds they took: replaced as a whole, so that any thread may read it.
        self._spent = (0, 0.0)
        self._told = (0, 0.0)

    def make(self) -> None:
        """Make the instance, if there is none yet. Raises SteeringFailed."""
        if self._instance is None:
            # A copy: whatever an instance does with its options, the next one gets what the caller wrote.
            options = copy.deepcopy(self._entry.options)
            self._instance = self._guarded(lambda: self._factory(**options))

    def change(self, row: Tensor, tokens: list[int]) -> None:
        """Change the row ``[vocabulary]`` in place. Raises SteeringFailed, which names the processor."""
        self.make()
        instance = self._instance
        assert instance is not None
        shape, device, seen = row.shape, row.device, len(tokens)
        started_s = time.perf_counter()
        try:
            answer: object = self._guarded(lambda: instance(tokens, row))
        finally:
            calls, seconds = self._spent
            self._spent = calls + 1, seconds + time.perf_counter() - started_s
        if answer is not None:
            raise SteeringFailed(f"{self._title} returned a value; it must change the row in place")
        if len(tokens) != seen:
            raise SteeringFailed(f"{self._title} changed the token ids")
        if row.shape != shape or row.device != device or row.dtype != torch.float32 or not _has_memory(row):
            raise SteeringFailed(f"{self._title} made another tensor of the row")
        largest = float(row.max())
        if math.isnan(largest) or largest == math.inf:
            raise SteeringFailed(f"{self._title} wrote NaN or +inf")
        if largest == -math.inf:
            raise SteeringFailed(f"{self._title} forbade every token")

    def take_use(self) -> tuple[int, float]:
        """Calls and seconds since the last time. The engine's thread."""
        spent, told = self._spent, self._told
        self._told = spent
        return spent[0] - told[0], spent[1] - told[1]

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Interrupted:
            raise
        except BaseException as exc:
            # SystemExit, too: it is the operator's code that wanted to end, and not the worker.
            raise SteeringFailed(f"{self._title} failed ({type(exc).__name__}{_place_of(exc)})") from exc

    @property
    def _title(self) -> str:
        return f"logits processor {self.name!r}"


def processors_of(entries: tuple[ProcessorEntry, ...], factories: Mapping[str, Factory]) -> list[Processor]:
    """Fresh ones for one choice, in the order of the entries."""
    return [Processor(entry, factories[entry.name]) for entry in entries]


def _place_of(exc: BaseException) -> str:
    """The line that raised it, which is no content; its text may be."""
    *_, (frame, line) = traceback.walk_tb(exc.__traceback__)
    path = frame.f_code.co_filename
    return "" if path == __file__ else f" at {PurePath(path).name}:{line}"


def _has_memory(row: Tensor) -> bool:
    """Whether the tensor still owns all that it shows; reading beyond would be a crash."""
    return row.is_contiguous() and row.untyped_storage().nbytes() >= row.numel() * row.element_size()
