"""Ragged paged attention behind transformers' own model code.

transformers calls one registered function per layer with this step's queries, keys and values,
after rotary embedding. What belongs to the step comes from a thread-local, not from keyword
arguments: some models drop those that they do not know.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from actors.engines.torch.batch import Span, StepBatch
from actors.engines.torch.kv_cache import KvCache, Scratch

IMPLEMENTATION = "dynamo_actor_ragged"
"""Name under which transformers knows the function."""


@dataclass(slots=True)
class Call:
    """One layer's call. query ``[1, heads, rows, width]``, key and value with the layer's KV heads.

    window: keys at ``position - window`` and before are not seen. softcap: tanh cap on the scores.
    sinks: one extra score per head that takes part in the softmax and is dropped afterwards.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    scaling: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None


class AttentionStep(Protocol):
    """What answers the calls of one forward pass."""

    def attend(self, call: Call) -> Tensor:
        """``[1, rows, heads, value width]``."""
        ...


class _Current(threading.local):
    step: AttentionStep | None = None


_current = _Current()


@contextmanager
def attending(step: AttentionStep) -> Generator[None]:
    """While open, forward passes of this thread attend through ``step``."""
    _current.step = step
    try:
        yield
    finally:
        _current.step = None


def attention_function(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls. Of the options, those that change the result are read.

    The mask is None: transformers makes none for an implementation it has no mask function for.
    Raises RuntimeError outside `attending`.
    """
    if _current.step is None:
        raise RuntimeError("the ragged attention was called outside a step")
    call = Call(
        layer=module.layer_idx,
        query=query,
        key=key,
        value=value,
        scaling=options["scaling"],
        window=options.get("sliding_window"),
        softcap=options.get("softcap"),
        sinks=options.get("s_aux"),
    )
    return _current.step.attend(call), None


class PagedAttention:
    """Answers the calls of one step from the KV cache."""

    def __init__(self, cache: KvCache, scratch: tuple[Scratch, Scratch], batch: StepBatch) -> None:
        self._cache = cache
        self._scratch = scratch
        self._batch = batch

    def attend(self, call: Call) -> Tensor:
        """Store this step's K and V, then let every span attend to its own context."""
        key, value = call.key[0].transpose(0, 1), call.value[0].transpose(0, 1)
        self._cache.write(call.layer, key, value, self._batch.slots)
        heads, rows = call.query.shape[1:3]
        spans = self._batch.spans
        if len(spans) == 1:
            return self._attend_span(call, spans[0]).unsqueeze(0)
        output = call.query.new_empty(rows, heads, call.value.shape[-1])
        for span in spans:
            output[span.first : span.first + span.rows] = self._attend_span(call, span)
        return output.unsqueeze(0)

    def _attend_span(self, call: Call, span: Span) -> Tensor:
        """``[rows, heads, value width]`` of one span."""
        first_key = 0
        if span.sequences == 1 and span.rows == 1 and call.window is not None:
            # A single query needs no mask: what it does not see is not read.
            first_key = max(0, span.context_tokens - call.window)
        key = self._context(self._cache.keys[call.layer], 0, span, first_key)
        value = self._context(self._cache.values[call.layer], 1, span, first_key)
        query = call.query[0, :, span.first : span.first + span.rows]
        if span.rows == span.sequences:
            return _attend_rows(call, query, key, value, _row_mask(span, call, key))
        return _attend_chunk(call, query, key, value, _chunk_mask(span, call, key))

    def _context(self, pool: Tensor, which: int, span: Span, first_key: int) -> Tensor:
        """K or V ``[sequences, kv heads, keys, width]``: a view of the pool, or gathered into scratch."""
        if span.blocks is None:
            rows = pool[span.first_slot + first_key : span.first_slot + span.context_tokens]
        else:
            rows = self._scratch[which].gather(pool, span.blocks, self._cache.block_tokens)
            if span.sequences == 1:
                rows = rows[first_key : span.context_tokens]
        return rows.view(span.sequences, -1, *rows.shape[1:]).transpose(1, 2)


def _attend_rows(call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """One query row per sequence. Query heads that share a KV head become rows of one product."""
    heads, rows, width = query.shape
    kv_heads = key.shape[1]
    grouped = query.transpose(0, 1).reshape(rows, kv_heads, heads // kv_heads, width)
    if call.softcap is None and call.sinks is None:
        output = functional.scaled_dot_product_attention(
            grouped, key, value, attn_mask=mask, scale=call.scaling
        )
    else:
        sinks = None if call.sinks is None else call.sinks.view(1, kv_heads, -1, 1).expand(rows, -1, -1, 1)
        output = _attend_by_hand(call, grouped, key, value, mask, sinks)
    return output.reshape(rows, heads, value.shape[-1])


def _attend_chunk(call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Many query rows of one sequence; without a mask they are causal from position 0."""
    if call.softcap is None and call.sinks is None:
        output = functional.scaled_dot_product_attention(
            query.unsqueeze(0),
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            scale=call.scaling,
            enable_gqa=True,
        )
        return output[0].transpose(0, 1)
    heads, rows, width = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(1, kv_heads, -1, rows, width)
    sinks = None if call.sinks is None else call.sinks.view(1, kv_heads, -1, 1, 1).expand(-1, -1, -1, rows, 1)
    output = _attend_by_hand(call, grouped, key.unsqueeze(2), value.unsqueeze(2), mask, sinks)
    return output.reshape(heads, rows, value.shape[-1]).transpose(0, 1)


def _attend_by_hand(
    call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sinks: Tensor | None
) -> Tensor:
    """Attention with what the fused kernel lacks: a cap on the scores, a sink column."""
    scores = torch.matmul(query, key.transpose(-1, -2)) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype)], dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return torch.matmul(weights[..., : key.shape[-2]], value)


def _row_mask(span: Span, call: Call, key: Tensor) -> Tensor | None:
    """Additive mask ``[sequences, 1, 1, keys]``; made once per step and window."""
    if span.sequences == 1:
        return None
    if call.window not in span.masks:
        length = torch.tensor(span.lengths, device=key.device).unsqueeze(1)
        position = torch.arange(key.shape[2], device=key.device)
        is_seen = position < length
        if call.window is not None:
            is_seen &= position >= length - call.window
        span.masks[call.window] = _additive(is_seen, key.dtype)[:, None, None]
    return span.masks[call.window]


def _chunk_mask(span: Span, call: Call, key: Tensor) -> Tensor | None:
    """Additive mask ``[rows, keys]`` of one chunk; made once per step and window."""
    is_plain = call.softcap is None and call.sinks is None
    is_windowed = call.window is not None and span.context_tokens > call.window
    if is_plain and span.start == 0 and not is_windowed:
        return None
    window = call.window if is_windowed else None
    if window not in span.masks:
        query_position = torch.arange(span.start, span.context_tokens, device=key.device).unsqueeze(1)
        position = torch.arange(span.context_tokens, device=key.device)
        is_seen = position <= query_position
        if window is not None:
            is_seen &= position > query_position - window
        span.masks[window] = _additive(is_seen, key.dtype)
    return span.masks[window]


def _additive(is_seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(is_seen.shape, dtype=dtype, device=is_seen.device).masked_fill_(
        ~is_seen, float("-inf")
    )
