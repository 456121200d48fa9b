"""One step as tensors: what goes into the model, and what its attention needs to know.

Rows are tokens. Prompts are cut into pieces, one attention call each; every token of an output is a
part of its own, also when it is computed again after a preemption, so that it gets the same bits as
the first time. Tokens of outputs come first, sorted by context length, in groups that share a call.

A piece is attended to as if it were whole, whatever of it is computed now: always as many query rows,
always up to its last key. So a token of a prompt has the same place in a call of the same size in any
prompt that begins with it, and gets the same bits, wherever a chunk or a hit in the cache begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from actors.engines.torch.scheduler import PIECE_TOKENS, Chunk, wants_prompt_logits

# A sequence this long is attended to on its own: the call costs nothing beside the work, and
# padding to a longer neighbour does.
ALONE_TOKENS = 1024

# Sums over keys are made by vectors of up to 16 values (AVX-512): what is masked changes no bit while it
# fills whole ones.
_VECTOR_TOKENS = 16

# The product with more than 192 values is cut at places that depend on how many there are, and the last bits
# with them (measured, float32: on some processors from four query heads to a KV head on, on others always).
# Such calls get one of few sizes, the same for a sequence in any company.
_UNCUT_TOKENS = 192
_SIZES = (256, 384, 512, 768, ALONE_TOKENS - 1)


@dataclass(slots=True, eq=False)
class Span:
    """Rows ``first`` .. ``first + rows - 1`` that share one attention call.

    sequences: 1, or several with one row each. context_tokens: keys of the longest one, or up to the
    end of the piece; padded_tokens: the same in whole units. blocks: those to gather, sequence after
    sequence; None where they are consecutive, and ``first_slot`` is where they begin. lengths: keys of
    each sequence. lead: rows of the piece in front of the first row, None where the span is no piece.
    start: position of the first row, of a piece its beginning. masks: by window, filled by the first
    layer that needs one.
    """

    first: int
    rows: int
    sequences: int
    context_tokens: int
    padded_tokens: int
    start: int
    blocks: Tensor | None
    first_slot: int
    lengths: list[int]
    lead: int | None
    masks: dict[int | None, Tensor] = field(default_factory=dict[int | None, Tensor])


@dataclass(slots=True, eq=False)
class StepBatch:
    """ids, positions ``[1, rows]``; slots ``[rows]``: where K/V goes; kept: rows whose logits are wanted.

    parts: of the chunks, in the order of their rows. wanted: those with kept rows, and how many of each.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    kept: Tensor
    spans: list[Span]
    parts: list[Chunk]
    wanted: list[tuple[Chunk, int]]


def unit_tokens(block_tokens: int) -> int:
    """Keys of a call come in multiples of this: whole blocks, and whole vectors where blocks allow it."""
    return _VECTOR_TOKENS if _VECTOR_TOKENS % block_tokens == 0 else block_tokens


class BatchBuilder:
    """Turns the chunks of a step into a `StepBatch`."""

    def __init__(self, block_tokens: int, group_tokens: int, device: torch.device) -> None:
        """``group_tokens``: gathered keys of one group, all its sequences together."""
        self._block_tokens = block_tokens
        self._unit_tokens = unit_tokens(block_tokens)
        self._group_tokens = group_tokens
        self._device = device

    def build(self, chunks: list[Chunk]) -> StepBatch:
        """Raises nothing for chunks as the scheduler makes them."""
        parts = [part for chunk in chunks for part in _parts(chunk)]
        singles = sorted((part for part in parts if not _is_piece(part)), key=lambda part: part.end)
        pieces = [part for part in parts if _is_piece(part)]
        spans = self._group(singles)
        for piece in pieces:
            spans.append(self._span_of_piece(piece, _next_row(spans)))
        return self._tensors(singles + pieces, spans)

    def _tensors(self, parts: list[Chunk], spans: list[Span]) -> StepBatch:
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        kept: list[int] = []
        wanted: list[tuple[Chunk, int]] = []
        for part in parts:
            ids += part.sequence.tokens[part.start : part.end]
            positions += range(part.start, part.end)
            slots += self._slots(part)
            rows = part.rows if wants_prompt_logits(part.sequence) else int(part.is_sampling)
            if rows:
                kept += range(len(ids) - rows, len(ids))
                wanted.append((part, rows))
        return StepBatch(
            ids=self._tensor([ids]),
            positions=self._tensor([positions]),
            slots=self._tensor(slots),
            kept=self._tensor(kept),
            spans=spans,
            parts=parts,
            wanted=wanted,
        )

    def _group(self, singles: list[Chunk]) -> list[Span]:
        """Neighbours in length share a call while what they gather stays small enough for the caches."""
        spans: list[Span] = []
        group: list[Chunk] = []
        for part in singles:
            size = self._size_of(part.end)
            padded = self._padded(max(part.end, size)) * (len(group) + 1)
            is_other = bool(group) and size != self._size_of(group[0].end)
            if group and (is_other or padded > self._group_tokens or part.end >= ALONE_TOKENS):
                spans.append(self._span_of_group(group, _next_row(spans)))
                group = []
            group.append(part)
        if group:
            spans.append(self._span_of_group(group, _next_row(spans)))
        return spans

    def _span_of_group(self, group: list[Chunk], first: int) -> Span:
        longest = group[-1].end
        return self._span(group, first, max(longest, self._size_of(longest)))

    @staticmethod
    def _size_of(tokens: int) -> int:
        """Keys of a call for a sequence this long, 0 where their number is free."""
        if not _UNCUT_TOKENS < tokens < ALONE_TOKENS:
            return 0
        return next(size for size in _SIZES if size >= tokens)

    def _span_of_piece(self, piece: Chunk, first: int) -> Span:
        lead = piece.start % PIECE_TOKENS
        begin = piece.start - lead
        span = self._span([piece], first, begin + PIECE_TOKENS)
        span.start, span.lead = begin, lead
        return span

    def _span(self, parts: list[Chunk], first: int, context_tokens: int) -> Span:
        blocks: list[int] = []
        padded_tokens = self._padded(context_tokens)
        count = padded_tokens // self._block_tokens
        for part in parts:
            own = part.sequence.blocks[:count]
            # Padding repeats the sequence's own last block, never a stranger's.
            blocks += own + own[-1:] * (count - len(own))
        is_consecutive = len(parts) == 1 and blocks == list(range(blocks[0], blocks[0] + count))
        return Span(
            first=first,
            rows=sum(part.rows for part in parts),
            sequences=len(parts),
            context_tokens=context_tokens,
            padded_tokens=padded_tokens,
            start=parts[0].start,
            blocks=None if is_consecutive else self._tensor(blocks),
            first_slot=blocks[0] * self._block_tokens,
            lengths=[part.end for part in parts],
            lead=None,
        )

    def _slots(self, part: Chunk) -> list[int]:
        size, blocks = self._block_tokens, part.sequence.blocks
        return [blocks[p // size] * size + p % size for p in range(part.start, part.end)]

    def _padded(self, tokens: int) -> int:
        return -(-tokens // self._unit_tokens) * self._unit_tokens

    def _tensor(self, numbers: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._device)


def _is_piece(part: Chunk) -> bool:
    return part.start < len(part.sequence.spec.prompt)


def _parts(chunk: Chunk) -> Iterator[Chunk]:
    """Pieces of the prompt, then single tokens of the output."""
    sequence, position = chunk.sequence, chunk.start
    while position < chunk.end:
        end = position + 1
        if position < len(sequence.spec.prompt):
            piece_end = (position // PIECE_TOKENS + 1) * PIECE_TOKENS
            end = min(chunk.end, piece_end, len(sequence.spec.prompt))
        yield Chunk(sequence, position, end - position)
        position = end


def _next_row(spans: list[Span]) -> int:
    """The first row after these spans."""
    return spans[-1].first + spans[-1].rows if spans else 0
