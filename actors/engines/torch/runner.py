"""One forward pass and the tokens it gives. Owns the model and the KV cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from actors.engines.torch.attention import PagedAttention, attending
from actors.engines.torch.batch import BatchBuilder
from actors.engines.torch.choosing import Choice, Chooser
from actors.engines.torch.faults import Fault, OutOfMemory, fault_of
from actors.engines.torch.kv_cache import KvCache, Scratch
from actors.engines.torch.logprobs import positions_of
from actors.engines.torch.pulse import Pulse
from actors.engines.torch.scheduler import Chunk, wants_prompt_logits
from actors.engines.torch.sequence import Sequence


class ModelRunner:
    """Computes steps. Everything here belongs to the engine's thread."""

    def __init__(
        self,
        model: Any,
        cache: KvCache,
        scratch: tuple[Scratch, Scratch],
        builder: BatchBuilder,
        chooser: Chooser,
    ) -> None:
        self._model = model
        self._cache = cache
        self._scratch = scratch
        self._builder = builder
        self.chooser = chooser
        self.pulse = Pulse()

    @torch.inference_mode()
    def run(self, chunks: list[Chunk]) -> list[Choice]:
        """Compute chunks; for each that samples, what comes next, unless that is late.

        Any exception means that the step as a whole failed; after OutOfMemory it can be made again with less.
        """
        try:
            logits, sampling = self._compute(chunks)
        except Exception as exc:
            if fault_of(exc) is Fault.MEMORY:
                raise OutOfMemory from exc
            raise
        return self.chooser.choose(logits, sampling) if sampling else []

    def _compute(self, chunks: list[Chunk]) -> tuple[Tensor, list[Sequence]]:
        """The forward pass: the rows that are sampled, and their sequences. Changes the KV cache alone."""
        batch = self._builder.build(chunks)
        with attending(PagedAttention(self._cache, self._scratch, batch, self.pulse)):
            output = self._model(
                input_ids=batch.ids,
                position_ids=batch.positions,
                use_cache=False,
                logits_to_keep=batch.kept,
            )
        self.pulse.beat()
        if not batch.wanted:
            return output.logits, []
        return _told(output.logits[0].to(torch.float32), batch.wanted)

    @torch.inference_mode()
    def scrub(self, blocks: list[int]) -> None:
        """Zero KV blocks."""
        self._cache.scrub(blocks)


def _told(logits: Tensor, wanted: list[tuple[Chunk, int]]) -> tuple[Tensor, list[Sequence]]:
    """Note what rows tell about prompts; the rows that are sampled, and their sequences."""
    sampling: list[Sequence] = []
    rows: list[int] = []
    first = 0
    for part, count in wanted:
        if wants_prompt_logits(part.sequence):
            _note_prompt(part, logits[first : first + count])
        first += count
        if part.is_sampling:
            sampling.append(part.sequence)
            rows.append(first - 1)
    if len(rows) < first:
        logits = logits[torch.tensor(rows, dtype=torch.long, device=logits.device)]
    return logits, sampling


def _note_prompt(part: Chunk, logits: Tensor) -> None:
    """Row p of a prompt tells about token p + 1; about the first one nothing does."""
    positions, count = part.sequence.request.prompt_positions, part.sequence.spec.output.prompt_logprobs
    told = list(part.sequence.spec.prompt[part.start + 1 : part.end + 1])
    if positions is None or count is None or not told:
        return
    found = positions_of(logits[: len(told)], told, [count] * len(told))
    positions[part.start + 1 : part.start + 1 + len(told)] = found
