"""One step as tensors: what goes into the model, and what its attention needs to know.

Rows are tokens. First come single-token chunks, sorted by context length and cut into groups that
share one attention call; then longer chunks, one call each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from actors.engines.torch.scheduler import Chunk

# A sequence this long is attended to on its own: the call costs nothing beside the work, and
# padding to a longer neighbour does.
_ALONE_TOKENS = 1024


@dataclass(slots=True, eq=False)
class Span:
    """Rows ``first`` .. ``first + rows - 1`` that share one attention call.

    sequences: 1, or several with one row each. context_tokens: keys to attend to (longest sequence).
    blocks: the blocks to gather, sequence after sequence; None where they are consecutive, and
    ``first_slot`` is where they begin. lengths: keys of each sequence. start: position of the first row.
    """

    first: int
    rows: int
    sequences: int
    context_tokens: int
    start: int
    blocks: Tensor | None
    first_slot: int
    lengths: list[int]
    masks: dict[int | None, Tensor | None] = field(default_factory=dict[int | None, Tensor | None])


@dataclass(slots=True, eq=False)
class StepBatch:
    """ids, positions ``[1, rows]``; slots ``[rows]``: where K/V goes; sampled: rows whose logits are wanted.

    chunks: in the order of their rows.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    sampled: Tensor
    spans: list[Span]
    chunks: list[Chunk]


class BatchBuilder:
    """Turns the chunks of a step into a `StepBatch`."""

    def __init__(self, block_tokens: int, group_tokens: int, device: torch.device) -> None:
        """``group_tokens``: gathered keys of one group, all its sequences together."""
        self._block_tokens = block_tokens
        self._group_tokens = group_tokens
        self._device = device

    def build(self, chunks: list[Chunk]) -> StepBatch:
        """Raises nothing for chunks as the scheduler makes them."""
        singles = sorted((c for c in chunks if c.rows == 1), key=lambda chunk: chunk.end)
        longer = [c for c in chunks if c.rows > 1]
        spans = self._group(singles)
        first = len(singles)
        for chunk in longer:
            spans.append(self._span([chunk], first))
            first += chunk.rows
        return self._tensors(singles + longer, spans)

    def _tensors(self, chunks: list[Chunk], spans: list[Span]) -> StepBatch:
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        sampled: list[int] = []
        for chunk in chunks:
            ids += chunk.sequence.tokens[chunk.start : chunk.end]
            positions += range(chunk.start, chunk.end)
            slots += self._slots(chunk)
            if chunk.is_sampling:
                sampled.append(len(ids) - 1)
        return StepBatch(
            ids=self._tensor([ids]),
            positions=self._tensor([positions]),
            slots=self._tensor(slots),
            sampled=self._tensor(sampled),
            spans=spans,
            chunks=chunks,
        )

    def _group(self, singles: list[Chunk]) -> list[Span]:
        """Neighbours in length share a call while what they gather stays small enough for the caches."""
        spans: list[Span] = []
        group: list[Chunk] = []
        for chunk in singles:
            padded = self._padded(chunk.end) * (len(group) + 1)
            if group and (padded > self._group_tokens or chunk.end >= _ALONE_TOKENS):
                spans.append(self._span(group, chunk_row(spans)))
                group = []
            group.append(chunk)
        if group:
            spans.append(self._span(group, chunk_row(spans)))
        return spans

    def _span(self, chunks: list[Chunk], first: int) -> Span:
        blocks: list[int] = []
        context_tokens = max(chunk.end for chunk in chunks)
        count = self._padded(context_tokens) // self._block_tokens
        for chunk in chunks:
            own = chunk.sequence.blocks[:count]
            # Padding repeats the sequence's own last block, never a stranger's.
            blocks += own + own[-1:] * (count - len(own))
        is_consecutive = len(chunks) == 1 and blocks == list(range(blocks[0], blocks[0] + count))
        return Span(
            first=first,
            rows=sum(chunk.rows for chunk in chunks),
            sequences=len(chunks),
            context_tokens=context_tokens,
            start=chunks[0].start,
            blocks=None if is_consecutive else self._tensor(blocks),
            first_slot=blocks[0] * self._block_tokens,
            lengths=[chunk.end for chunk in chunks],
        )

    def _slots(self, chunk: Chunk) -> list[int]:
        size, blocks = self._block_tokens, chunk.sequence.blocks
        return [blocks[p // size] * size + p % size for p in range(chunk.start, chunk.end)]

    def _padded(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens) * self._block_tokens

    def _tensor(self, numbers: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._device)


def chunk_row(spans: list[Span]) -> int:
    """The first row after these spans."""
    return spans[-1].first + spans[-1].rows if spans else 0
