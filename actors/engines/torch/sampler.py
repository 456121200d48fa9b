"""The next token of each row: greedy by argmax, otherwise one uniform through the inverse CDF.

Rows are handled by class and never sorted as a whole: what a row costs, and what it gets, does not
depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from actors.engines.torch.noise import uniform
from actors.engines.torch.sequence import Sequence
from actors.engines.torch.stopping import forbidden_ids

# Width of one chunk of the two-level inverse CDF.
_CHUNK = 256
# How many of the largest weights are sorted. A row goes on to the next size when its nucleus does not
# fit; nearly all fit into the first. The sizes are fixed, so that neighbours cannot change a row's.
_SORTED = (256, 4096)


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
        self._sizes = (*(size for size in _SORTED if size < vocab_size), vocab_size)
        # Touched now: a fresh buffer of this size per step would be paid for in page faults.
        self._buffer = torch.zeros(max_rows * vocab_size, device=device)

    def choose(self, logits: Tensor, sequences: list[Sequence]) -> list[int | None]:
        """One id per row of ``[rows, vocabulary]``; None where the row is not finite. Changes logits."""
        for row, sequence in enumerate(sequences):
            forbidden = [token for token in forbidden_ids(sequence) if token < self._vocab_size]
            if forbidden:
                logits[row, torch.tensor(forbidden, device=self._device)] = float("-inf")
        best = logits.argmax(dim=-1, keepdim=True)
        # NaN and +inf win an argmax, so the largest logit tells about the whole row.
        largest = logits.gather(-1, best)
        is_finite = _bools(torch.isfinite(largest[:, 0]))
        chosen = [token if fine else None for token, fine in zip(_ids(best), is_finite, strict=True)]
        draws = [
            self._draw_of(row, sequence)
            for row, sequence in enumerate(sequences)
            if is_finite[row] and not sequence.spec.sampling.is_greedy
        ]
        for row, token in self._drawn(logits, largest, draws):
            chosen[row] = token
        return chosen

    def _draw_of(self, row: int, sequence: Sequence) -> _Draw:
        sampling = sequence.spec.sampling
        return _Draw(
            row=row,
            uniform=uniform(sampling.seed, sequence.index, len(sequence.tokens)),
            temperature=sampling.temperature,
            top_k=sampling.top_k if 0 < sampling.top_k < self._vocab_size else 0,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
        )

    def _drawn(self, logits: Tensor, largest: Tensor, draws: list[_Draw]) -> list[tuple[int, int]]:
        """Row and token of every draw."""
        drawn: list[tuple[int, int]] = []
        free = [draw for draw in draws if draw.top_k == 0 and draw.top_p >= 1.0]
        for has_min_p in (False, True):
            like = [draw for draw in free if (draw.min_p > 0.0) is has_min_p]
            if like:
                weights = self._weights(logits, largest, like)
                if has_min_p:
                    weights.masked_fill_(weights < self._column([draw.min_p for draw in like]), 0.0)
                drawn += zip((d.row for d in like), _ids(_invert(weights, self._uniforms(like))), strict=True)
        waiting = [draw for draw in draws if draw.top_k > 0 or draw.top_p < 1.0]
        for size in self._sizes:
            fitting = [draw for draw in waiting if draw.top_k <= size]
            if not fitting:
                continue
            weights = self._weights(logits, largest, fitting)
            tokens, is_covered = self._restricted(weights, fitting, size)
            found = {d.row: t for d, t, c in zip(fitting, tokens, is_covered, strict=True) if c}
            drawn += found.items()
            waiting = [draw for draw in waiting if draw.row not in found]
        return drawn

    def _weights(self, logits: Tensor, largest: Tensor, draws: list[_Draw]) -> Tensor:
        """exp((logit - largest) / temperature) of the draws' rows; valid until the next call."""
        rows = torch.tensor([draw.row for draw in draws], device=self._device)
        weights = self._buffer[: len(draws) * self._vocab_size].view(len(draws), self._vocab_size)
        torch.index_select(logits, 0, rows, out=weights)
        temperatures = self._column([draw.temperature for draw in draws])
        return weights.sub_(largest[rows]).div_(temperatures).exp_()

    def _column(self, numbers: list[float]) -> Tensor:
        return torch.tensor(numbers, device=self._device).unsqueeze(-1)

    def _uniforms(self, draws: list[_Draw]) -> Tensor:
        return torch.tensor([[d.uniform] for d in draws], dtype=torch.float64, device=self._device)

    def _restricted(self, weights: Tensor, draws: list[_Draw], size: int) -> tuple[list[int], list[bool]]:
        """Draw among the largest ``size`` weights under top-k, then top-p of what that leaves, then min-p.

        A row is covered when its whole nucleus lies within ``size``.
        """
        values, ids = weights.topk(size, dim=-1)
        mass = values.double().cumsum(dim=-1)
        limits = torch.tensor([[d.top_k or size] for d in draws], device=self._device)
        has_top_k = torch.tensor([[d.top_k > 0] for d in draws], device=self._device)
        whole = torch.where(
            has_top_k, mass.gather(-1, limits - 1), weights.sum(-1, keepdim=True, dtype=torch.float64)
        )
        wanted = whole * torch.tensor([[d.top_p] for d in draws], dtype=torch.float64, device=self._device)
        is_kept = (mass - values < wanted) & (torch.arange(size, device=self._device) < limits)
        is_kept &= values >= self._column([draw.min_p for draw in draws])
        kept = is_kept.sum(dim=-1, keepdim=True).clamp_(min=1)
        target = self._uniforms(draws) * mass.gather(-1, kept - 1)
        place = torch.minimum((mass <= target).sum(dim=-1, keepdim=True), kept - 1)
        is_covered = has_top_k | (mass[:, -1:] >= wanted) | (size == self._vocab_size)
        return _ids(ids.gather(-1, place)), _bools(is_covered)


def _invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Ids ``[rows, 1]`` by inverse CDF in id order: find the chunk, then the id in it. float64 sums."""
    rows, width = weights.shape
    whole = width // _CHUNK * _CHUNK
    sums = weights[:, :whole].view(rows, -1, _CHUNK).sum(dim=-1, dtype=torch.float64)
    rest = weights[:, whole:].sum(dim=-1, keepdim=True, dtype=torch.float64)
    mass = torch.cat([sums, rest], dim=-1).cumsum(dim=-1)
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
