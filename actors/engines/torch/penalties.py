"""Penalties on tokens that were there before, on one row and only where there is something to change.

repetition: tokens of prompt and output; a positive logit is divided by it, a negative one multiplied.
presence: subtracted once from every token of the output. frequency: once for each time it occurred.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from protocols.spec import Sampling


class Penalties:
    """Of one sequence: the tokens it has, each once, and how often it was output.

    A function of the tokens alone, so nothing has to be remembered over a preemption.
    """

    def __init__(self, sampling: Sampling, prompt: Iterable[int], device: torch.device) -> None:
        self._sampling = sampling
        self._device = device
        self._places: dict[int, int] = {}
        self._ids = torch.empty(0, dtype=torch.long, device=device)
        self._counts = torch.empty(0, device=device)
        self._used = 0
        self._grow(prompt if sampling.repetition_penalty != 1.0 else ())

    @staticmethod
    def needed(sampling: Sampling) -> bool:
        """Whether any of the three is set."""
        return (
            sampling.repetition_penalty != 1.0
            or sampling.presence_penalty != 0.0
            or sampling.frequency_penalty != 0.0
        )

    def note(self, token: int) -> None:
        """A token of the output was accepted."""
        self._grow((token,))
        self._counts[self._places[token]] += 1

    def apply(self, row: Tensor) -> None:
        """Change ``[vocabulary]`` in place."""
        if not self._used:
            return
        ids, counts = self._ids[: self._used], self._counts[: self._used]
        logits = row[ids]
        repetition = self._sampling.repetition_penalty
        if repetition != 1.0:
            logits = torch.where(logits > 0, logits / repetition, logits * repetition)
        if self._sampling.frequency_penalty:
            logits = logits - self._sampling.frequency_penalty * counts
        if self._sampling.presence_penalty:
            logits = logits - self._sampling.presence_penalty * (counts > 0)
        row[ids] = logits

    def _grow(self, tokens: Iterable[int]) -> None:
        """Make places for tokens that have none, doubling the room when it is used up."""
        fresh = [token for token in dict.fromkeys(tokens) if token not in self._places]
        if not fresh:
            return
        used = self._used + len(fresh)
        if used > len(self._ids):
            more = 2 * used - len(self._ids)
            self._ids = torch.cat([self._ids, self._ids.new_zeros(more)])
            self._counts = torch.cat([self._counts, self._counts.new_zeros(more)])
        self._ids[self._used : used] = torch.tensor(fresh, dtype=torch.long, device=self._device)
        self._places.update({token: self._used + place for place, token in enumerate(fresh)})
        self._used = used
