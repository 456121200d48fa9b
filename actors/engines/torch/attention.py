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
from actors.engines.torch.masks import first_key_of, span_mask
from actors.engines.torch.pulse import Pulse
from actors.engines.torch.scheduler import PIECE_TOKENS

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
    """Answers the calls of one step from the KV cache. ``pulse``: a step may take longer than a hang may."""

    def __init__(
        self, cache: KvCache, scratch: tuple[Scratch, Scratch], batch: StepBatch, pulse: Pulse
    ) -> None:
        self._cache = cache
        self._scratch = scratch
        self._batch = batch
        self._pulse = pulse

    def attend(self, call: Call) -> Tensor:
        """Store this step's K and V, then let every span attend to its own context."""
        self._pulse.beat()
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
        self._pulse.beat()
        first_key = first_key_of(span, call.window, self._cache.block_tokens)
        key = self._context(self._cache.keys[call.layer], 0, span)[:, :, first_key:]
        value = self._context(self._cache.values[call.layer], 1, span)[:, :, first_key:]
        query = call.query[0, :, span.first : span.first + span.rows]
        if call.window not in span.masks:
            span.masks[call.window] = span_mask(span, call.window, first_key, key)
        mask = span.masks[call.window]
        if span.lead is None:
            return _attend_rows(call, query, key, value, mask)
        if span.rows < PIECE_TOKENS:
            # What is not computed now is nothing but places: the rows keep theirs, and so their bits.
            query = functional.pad(query, (0, 0, span.lead, PIECE_TOKENS - span.lead - span.rows))
        return _attend_piece(call, query, key, value, mask)[span.lead : span.lead + span.rows]

    def _context(self, pool: Tensor, which: int, span: Span) -> Tensor:
        """K or V ``[sequences, kv heads, keys, width]``: a view of the pool, or gathered into scratch."""
        if span.blocks is None:
            rows = pool[span.first_slot : span.first_slot + span.padded_tokens]
        else:
            rows = self._scratch[which].gather(pool, span.blocks, self._cache.block_tokens)
        return rows.view(span.sequences, span.padded_tokens, *rows.shape[1:]).transpose(1, 2)


def _attend_rows(call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
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


def _attend_piece(call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Many query rows of one sequence, all of a piece."""
    if call.softcap is None and call.sinks is None:
        output = functional.scaled_dot_product_attention(
            query.unsqueeze(0), key, value, attn_mask=mask, scale=call.scaling, enable_gqa=True
        )
        return output[0].transpose(0, 1)
    heads, rows, width = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(1, kv_heads, -1, rows, width)
    sinks = None if call.sinks is None else call.sinks.view(1, kv_heads, -1, 1, 1).expand(-1, -1, -1, rows, 1)
    output = _attend_by_hand(call, grouped, key.unsqueeze(2), value.unsqueeze(2), mask, sinks)
    return output.reshape(heads, rows, value.shape[-1]).transpose(0, 1)


def _attend_by_hand(
    call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor | None
) -> Tensor:
    """Attention with what the fused kernel lacks: a cap on the scores, a sink column."""
    scores = torch.matmul(query, key.transpose(-1, -2)) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores.dtype)], dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return torch.matmul(weights[..., : key.shape[-2]], value)
