"""The next token of each row: greedy by argmax, otherwise one uniform through the inverse CDF.

Order: ids that min_tokens forbids, temperature, top-k, top-p of what that leaves, min-p, the draw. What
changes the logits before that (penalties, processors, grammar) is in `choosing`.

A row is drawn among its kept ids in the order of the ids. Which those are is decided for each row alone
(`cutting`), so what a row costs, and what it gets, does not depend on its neighbours. Sums are float64,
weights float32: a uniform that lies within some 1e-6 of the border between two ids may give either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from actors.engines.torch.cutting import Cut, cut_of
from actors.engines.torch.noise import uniform
from actors.engines.torch.sequence import Sequence
from actors.engines.torch.stopping import forbidden_ids

# Width of one chunk of the two-level inverse CDF.
_CHUNK = 256
# Below this a temperature is greedy in all but name, and float32 would make it 0.
_COLDEST = 1e-30


@dataclass(frozen=True, slots=True)
class _Draw:
    """One row to draw. top_k 0: no limit. min_p: of the most likely token's weight, which is 1."""

    row: int
    uniform: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float


class Sampler:
    """Chooses tokens from logits. Only the engine's thread calls it."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        # Touched now: a fresh buffer of this size per step would be paid for in page faults.
        self._buffer = torch.zeros(max_rows * vocab_size, device=device)

    def choose(self, logits: Tensor, sequences: list[Sequence]) -> list[int | None]:
        """One id per row of ``[rows, vocabulary]``; None where the row is not finite. Changes logits."""
        for row, sequence in enumerate(sequences):
            forbidden = [token for token in forbidden_ids(sequence) if token < self._vocab_size]
            if forbidden:
                logits[row, torch.tensor(forbidden, device=self._device)] = float("-inf")
        # NaN and +inf win, so the largest logit tells about the whole row.
        largest = logits.amax(dim=-1, keepdim=True)
        is_finite = _bools(torch.isfinite(largest))
        greedy: list[int] = []
        draws: list[_Draw] = []
        for row, sequence in enumerate(sequences):
            if is_finite[row] and sequence.spec.sampling.is_greedy:
                greedy.append(row)
            elif is_finite[row]:
                draws.append(self._draw_of(row, sequence))
        chosen: list[int | None] = [None] * len(sequences)
        if greedy:
            rows = logits if len(greedy) == len(sequences) else logits[self._index(greedy)]
            for row, token in zip(greedy, _ids(rows.argmax(dim=-1)), strict=True):
                chosen[row] = token
        if draws:
            for draw, token in zip(draws, self._drawn(logits, largest, draws), strict=True):
                chosen[draw.row] = token
        return chosen

    def _draw_of(self, row: int, sequence: Sequence) -> _Draw:
        sampling = sequence.spec.sampling
        return _Draw(
            row=row,
            uniform=uniform(sampling.seed, sequence.index, len(sequence.tokens)),
            temperature=max(sampling.temperature, _COLDEST),
            top_k=sampling.top_k if 0 < sampling.top_k < self._vocab_size else 0,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
        )

    def _drawn(self, logits: Tensor, largest: Tensor, draws: list[_Draw]) -> list[int]:
        """The token of every draw."""
        weights = self._weights(logits, largest, draws)
        sums = _chunk_sums(weights)
        cuts = _cuts(weights, sums, draws)
        if any(cut.least > 0 for cut in cuts):
            weights.masked_fill_(weights < self._column([cut.least for cut in cuts]), 0.0)
            for row, cut in zip(weights, cuts, strict=True):
                if cut.equals is not None:
                    row[(row == cut.least).nonzero()[cut.equals :, 0]] = 0.0
            sums = _chunk_sums(weights)
        uniforms = torch.tensor([[draw.uniform] for draw in draws], dtype=torch.float64, device=self._device)
        return _ids(_invert(weights, sums, uniforms))

    def _weights(self, logits: Tensor, largest: Tensor, draws: list[_Draw]) -> Tensor:
        """exp((logit - largest) / temperature) of the draws' rows; valid until the next call."""
        rows = self._index([draw.row for draw in draws])
        weights = self._buffer[: len(draws) * self._vocab_size].view(len(draws), self._vocab_size)
        torch.index_select(logits, 0, rows, out=weights)
        return weights.sub_(largest[rows]).div_(self._column([draw.temperature for draw in draws])).exp_()

    def _column(self, numbers: list[float]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float32, device=self._device).unsqueeze(-1)

    def _index(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows, device=self._device)


def _cuts(weights: Tensor, sums: Tensor, draws: list[_Draw]) -> list[Cut]:
    """What each draw keeps of its row. Only rows with top-k or top-p are looked at."""
    is_cut = [draw.top_k > 0 or draw.top_p < 1.0 for draw in draws]
    if not any(is_cut):
        return [Cut(draw.min_p) for draw in draws]
    rows: Any = weights.cpu().numpy()
    wholes: Any = sums.sum(dim=-1)
    return [
        cut_of(row, whole, draw.top_k, draw.top_p).with_least(draw.min_p) if here else Cut(draw.min_p)
        for row, whole, draw, here in zip(rows, wholes.tolist(), draws, is_cut, strict=True)
    ]


def _chunk_sums(weights: Tensor) -> Tensor:
    """``[rows, chunks]``, float64. The last chunk is what is left of the row, which may be nothing."""
    rows, width = weights.shape
    whole = width // _CHUNK * _CHUNK
    # Summed as float32: a sum of 256 loses nothing that the weights have, and a float64 copy is 25 MB.
    sums = weights[:, :whole].view(rows, -1, _CHUNK).sum(dim=-1)
    return torch.cat([sums, weights[:, whole:].sum(dim=-1, keepdim=True)], dim=-1).double()


def _invert(weights: Tensor, sums: Tensor, uniforms: Tensor) -> Tensor:
    """Ids ``[rows, 1]`` by inverse CDF in id order: find the chunk, then the id in it."""
    width = weights.shape[-1]
    mass = sums.cumsum(dim=-1)
    chunk, left = _place(mass, uniforms * mass[:, -1:])
    ids = chunk * _CHUNK + torch.arange(_CHUNK, device=weights.device)
    inner = weights.gather(-1, ids.clamp(max=width - 1)).double().masked_fill_(ids >= width, 0.0)
    place, _ = _place(inner.cumsum(dim=-1), left)
    return ids.gather(-1, place)


def _place(mass: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """First place whose cumulated mass exceeds the target, and what the target has left inside it.

    Rounding may put the target at the very end: then the last place with any mass is taken.
    """
    last = (mass < mass[:, -1:]).sum(dim=-1, keepdim=True)
    place = torch.minimum((mass <= target).sum(dim=-1, keepdim=True), last)
    before = torch.where(place > 0, mass.gather(-1, (place - 1).clamp(min=0)), 0.0)
    return place, target - before


def _ids(column: Tensor) -> list[int]:
    numbers: Any = column.flatten()
    return cast("list[int]", numbers.tolist())


def _bools(column: Tensor) -> list[bool]:
    flags: Any = column.flatten()
    return cast("list[bool]", flags.tolist())
