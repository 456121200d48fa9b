"""One sequence of a request with logits processors, in the engine's process: its instances and its row.

What TensorRT-LLM hands over is a part of the logits of its whole batch. The processors get a copy, which is
written back when it is sound: so they can neither touch a neighbour nor keep what belongs to the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from actors.engines.foreign.processors import Processor
from actors.engines.foreign.steering_failed import SteeringFailed

# The score of what must not be chosen, where -inf would be too much: when nothing else is left the engine
# draws from what is not a number, and that can end it.
_FORBIDDEN = -1e4

# As engine torch says it.
_NOTHING_LEFT = "the constraints of the request leave no token to choose"
BEAMS = "logits processors take one sequence at a time, and the engine follows several beams"
LEFT_OUT = "the engine chose a token without its logits processors: it paused the sequence, or guesses ahead"


class SteeredSequence:
    """Only the engine's thread calls it.

    make: fresh processors. prompt_tokens: length of the prompt. end_id: the id that the engine does not
    allow before ``min_tokens`` are out; None without one.
    is_overlapped: the engine begins a step before it knows what the one before it chose, so that the ids
    it shows are short of the last one.
    has_grammar: the engine masks the row afterwards.
    """

    def __init__(
        self,
        make: Callable[[], list[Processor]],
        *,
        prompt_tokens: int,
        min_tokens: int = 0,
        end_id: int | None = None,
        is_overlapped: bool = False,
        has_grammar: bool = False,
    ) -> None:
        self._make = make
        self._prompt_tokens = prompt_tokens
        self._min_tokens = min_tokens
        self._end_id = end_id
        self._is_overlapped = is_overlapped
        self._has_grammar = has_grammar
        self._processors = make()
        # Ids at the first call, and calls since then.
        self._first_seen: int | None = None
        self._asked = 0
        # The same memory for every token.
        self._own: Tensor | None = None

    def change(self, logits: Tensor, token_ids: Sequence[Sequence[int]]) -> None:
        """Change the row of the next token. Raises SteeringFailed; then the row is as it was.

        logits: ``[..., vocabulary]`` with one row. token_ids: of each beam, prompt and output so far.
        """
        row = row_of(logits)
        if len(token_ids) != 1:
            raise SteeringFailed(BEAMS)
        tokens = list(token_ids[0])
        self._note(len(tokens))
        own = self._copy(row)
        for processor in self._processors:
            processor.change(own, tokens)
        self._finish(own)
        row.copy_(own)

    def take_use(self) -> list[tuple[int, float]]:
        """Calls and seconds of each processor since the last time."""
        return [processor.take_use() for processor in self._processors]

    def _note(self, seen: int) -> None:
        """How many ids there are tells whether this is the token after the last one."""
        if self._first_seen is None:
            self._first_seen = seen
        elif seen == self._first_seen and not self._is_overlapped:
            # The engine computes a long prompt in parts, and asks after each; only the last one counts.
            self._processors, self._asked = self._make(), 0
        elif seen > self._first_seen + self._asked:
            raise SteeringFailed(LEFT_OUT)
        self._asked += 1

    def _copy(self, row: Tensor) -> Tensor:
        if self._own is None or self._own.shape != row.shape:
            self._own = torch.empty(row.shape, dtype=torch.float32, device=row.device)
        return self._own.copy_(row)

    def _finish(self, own: Tensor) -> None:
        """What the engine does to the row later must leave something to choose."""
        if self._is_end_held_back and self._end_id is not None and self._end_id < own.numel():
            own[self._end_id] = -math.inf
            if float(own.max()) == -math.inf:
                raise SteeringFailed(_NOTHING_LEFT)
        if self._has_grammar:
            own.clamp_(min=_FORBIDDEN)

    @property
    def _is_end_held_back(self) -> bool:
        assert self._first_seen is not None
        return self._first_seen - self._prompt_tokens + self._asked - 1 < self._min_tokens


def row_of(logits: Tensor) -> Tensor:
    """The one row ``[vocabulary]`` of logits ``[..., vocabulary]``, in the same memory.

    Raises SteeringFailed where there are more.
    """
    row = logits
    while row.dim() > 1:
        if row.shape[0] != 1:
            raise SteeringFailed(BEAMS)
        row = row[0]
    return row


def force_end(logits: Tensor, end_id: int | None) -> None:
    """Leave the engine nothing but the end, in every row; without an end leave the rows as they are."""
    if end_id is not None and end_id < logits.shape[-1]:
        logits.fill_(_FORBIDDEN)
        logits[..., end_id] = 0.0


def on_stream(pointer: int | None) -> AbstractContextManager[object]:
    """Where the engine computes: its own stream by its address, or None for the current one."""
    if pointer is None:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(pointer))  # type: ignore[no-untyped-call]
