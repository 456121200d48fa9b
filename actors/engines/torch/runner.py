"""One forward pass and the tokens it gives. Owns the model, the KV cache and the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from actors.engines.torch.attention import PagedAttention, attending
from actors.engines.torch.batch import BatchBuilder
from actors.engines.torch.kv_cache import KvCache, Scratch
from actors.engines.torch.sampler import Sampler
from actors.engines.torch.scheduler import Chunk
from actors.engines.torch.sequence import Sequence


class ModelRunner:
    """Computes steps. Everything here belongs to the engine's thread."""

    def __init__(
        self,
        model: Any,
        cache: KvCache,
        scratch: tuple[Scratch, Scratch],
        builder: BatchBuilder,
        sampler: Sampler,
    ) -> None:
        self._model = model
        self._cache = cache
        self._scratch = scratch
        self._builder = builder
        self._sampler = sampler

    @torch.inference_mode()
    def run(self, chunks: list[Chunk]) -> Iterator[tuple[Sequence, int | None]]:
        """Compute chunks; for each that samples, the next token, or None where logits are not finite.

        Any exception means that the step as a whole failed.
        """
        batch = self._builder.build(chunks)
        with attending(PagedAttention(self._cache, self._scratch, batch)):
            output = self._model(
                input_ids=batch.ids,
                position_ids=batch.positions,
                use_cache=False,
                logits_to_keep=batch.sampled,
            )
        sampling = [part.sequence for part in batch.parts if part.is_sampling]
        if not sampling:
            return iter(())
        logits = output.logits[0].to(torch.float32)
        return zip(sampling, self._sampler.choose(logits, sampling), strict=True)

    @torch.inference_mode()
    def scrub(self, blocks: list[int]) -> None:
        """Zero KV blocks."""
        self._cache.scrub(blocks)
