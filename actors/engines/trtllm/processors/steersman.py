"""The logits processors of one request at work in the engine's process, and what the driver hears of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from actors.engines.foreign.processors import Processor
from actors.engines.foreign.steering_failed import SteeringFailed
from actors.engines.trtllm.processors.factories import Orders, unpickled
from actors.engines.trtllm.processors.patience import GIVE_UP_S, Patience, TookTooLong
from actors.engines.trtllm.processors.spool_writer import SpoolWriter
from actors.engines.trtllm.processors.steered import SteeredSequence, force_end, on_stream

SequenceKey = tuple[int, int]
"""Copy of the processor, and the engine's id. An engine copies for each choice, has ids for each, or both."""

# Of this process: all requests share its thread.
_PATIENCE = Patience(GIVE_UP_S)


class Steersman:
    """Only the engine's thread calls it. One failure is the whole request's: all its sequences end."""

    def __init__(self, orders: Orders, patience: Patience = _PATIENCE) -> None:
        self._orders = orders
        self._patience = patience
        self._writer = SpoolWriter(orders.spool)
        self._copies = itertools.count(1)
        self._sequences: dict[SequenceKey, SteeredSequence] = {}
        self._spent = [(0, 0.0)] * len(orders.entries)
        self._failure: str | None = None
        self._is_interrupted = False
        self._is_told = True

    def join(self) -> int:
        """A number for one more copy of the request's processor."""
        return next(self._copies)

    def steer(
        self, key: SequenceKey, logits: Tensor, token_ids: Sequence[Sequence[int]], stream_ptr: int | None
    ) -> None:
        """Change the row of one sequence's next token, or force its end.

        Raises only what a device raises that is gone.
        """
        with on_stream(stream_ptr), torch.inference_mode():
            if self._failure is None:
                self._failure = self._try(key, logits, token_ids)
                self._is_told = self._tell()
            elif not self._is_told:
                self._is_told = self._tell()
            if self._failure is not None:
                force_end(logits, self._end_id)

    def _try(self, key: SequenceKey, logits: Tensor, token_ids: Sequence[Sequence[int]]) -> str | None:
        """Why it did not work, in words without content; None when it did."""
        try:
            self._patience.perform(lambda: self._change(key, logits, token_ids))
        except SteeringFailed as exc:
            return str(exc)
        except TookTooLong:
            self._is_interrupted = True
            return f"{self._title} did not return within {self._patience.limit_s:g} s"
        except BaseException as exc:
            return f"{self._title} failed ({type(exc).__name__})"
        finally:
            self._count(key)
        return None

    def _change(self, key: SequenceKey, logits: Tensor, token_ids: Sequence[Sequence[int]]) -> None:
        sequence = self._sequences.get(key)
        if sequence is None:
            if len(self._sequences) >= self._orders.most_sequences:
                raise SteeringFailed("the engine follows more sequences than the request has choices")
            sequence = self._sequences[key] = self._begin()
        sequence.change(logits, token_ids)

    def _begin(self) -> SteeredSequence:
        orders = self._orders
        return SteeredSequence(
            partial(_made, orders),
            prompt_tokens=orders.prompt_tokens,
            min_tokens=orders.min_tokens,
            end_id=self._end_id,
            is_overlapped=orders.is_overlapped,
            has_grammar=orders.has_grammar,
        )

    def _count(self, key: SequenceKey) -> None:
        sequence = self._sequences.get(key)
        if sequence is not None:
            self._spent = [
                (calls + more[0], seconds + more[1])
                for (calls, seconds), more in zip(self._spent, sequence.take_use(), strict=True)
            ]

    def _tell(self) -> bool:
        with suppress(Exception):
            return self._writer.write(self._spent, self._failure, is_interrupted=self._is_interrupted)
        return False

    @property
    def _end_id(self) -> int | None:
        return self._orders.end_id if self._orders.end_id >= 0 else None

    @property
    def _title(self) -> str:
        return "logits processor " + ", ".join(repr(entry.name) for entry in self._orders.entries)


def _made(orders: Orders) -> list[Processor]:
    """Fresh ones; their instances are made by their first call. Raises SteeringFailed."""
    made: list[Processor] = []
    for entry in orders.entries:
        try:
            factory = unpickled(orders.factories[entry.name])
        except Exception as exc:
            title = f"logits processor {entry.name!r}"
            raise SteeringFailed(f"{title} cannot be imported by the engine ({type(exc).__name__})") from exc
        made.append(Processor(entry, factory))
    return made


_AT_WORK: WeakValueDictionary[str, Steersman] = WeakValueDictionary()


def steersman_of(orders: Orders) -> Steersman:
    """The one that all copies of a request's processor have in this process, by the request's own file."""
    found = _AT_WORK.get(orders.spool)
    if found is None:
        found = _AT_WORK[orders.spool] = Steersman(orders)
    return found
