"""Which keys a query sees, as additive masks. Made once per step, span and window; used by all layers.

Keys are always whole blocks, and what is too much is masked. The number of keys decides which kernel
multiplies them, so this is what gives a row the same bits alone and in a group, and a prompt the same
bits whole and in chunks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from actors.engines.torch.batch import ALONE_TOKENS, Span
from actors.engines.torch.scheduler import PIECE_TOKENS


def first_key_of(span: Span, window: int | None, block_tokens: int) -> int:
    """The first position worth reading: where a window has left whole blocks of a long context behind."""
    if window is None or span.context_tokens < ALONE_TOKENS:
        return 0
    return max(0, span.start + 1 - window) // block_tokens * block_tokens


def span_mask(span: Span, window: int | None, first_key: int, like: Tensor) -> Tensor:
    """0 where a key is seen, -inf elsewhere; in dtype and on device of ``like``.

    ``[sequences, 1, 1, keys]`` for single rows, ``[PIECE_TOKENS, keys]`` for a piece.
    """
    device = like.device
    key_position = torch.arange(first_key, span.padded_tokens, device=device)
    if span.lead is None:
        query_position = torch.tensor(span.lengths, device=device).view(-1, 1, 1, 1) - 1
    else:
        query_position = torch.arange(span.start, span.start + PIECE_TOKENS, device=device).view(-1, 1)
    is_seen = key_position <= query_position
    if window is not None:
        is_seen &= key_position > query_position - window
    mask = torch.zeros(is_seen.shape, dtype=like.dtype, device=device)
    return mask.masked_fill_(~is_seen, float("-inf"))
