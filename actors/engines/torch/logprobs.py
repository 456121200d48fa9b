"""Logprobs of chosen tokens and of their most likely rivals, from raw logits."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from protocols.steps import Candidate, Position

# Rows reduced at once: more would need a buffer of hundreds of megabytes for a long prompt.
_ROWS = 64


def positions_of(logits: Tensor, tokens: list[int], counts: list[int]) -> list[Position]:
    """For each row of ``[rows, vocabulary]``: its token, then the ``counts[row]`` most likely ones, without it.

    Where the token itself is one of the most likely, there is one rival less.
    """
    positions: list[Position] = []
    for first in range(0, len(tokens), _ROWS):
        here = slice(first, first + _ROWS)
        positions += _positions(logits[here], tokens[here], counts[here])
    return positions


def _positions(logits: Tensor, tokens: list[int], counts: list[int]) -> list[Position]:
    largest = logits.max(dim=-1, keepdim=True).values
    # Softmax's sum in a buffer: torch's own logsumexp takes ten times as long on a CPU.
    norm = largest + (logits - largest).exp_().sum(dim=-1, keepdim=True, dtype=torch.float64).log_()
    chosen = logits.gather(-1, torch.tensor(tokens, device=logits.device).unsqueeze(-1))
    ranks = _list((logits > chosen).sum(dim=-1) + 1)
    chosen_logprobs = _list((chosen - norm)[:, 0])
    most = min(max(counts), logits.shape[-1])
    if most == 0:
        return [
            [Candidate(token, logprob, rank)]
            for token, logprob, rank in zip(tokens, chosen_logprobs, ranks, strict=True)
        ]
    top = logits.topk(most, dim=-1)
    rival_logprobs, rival_ids = _list(top.values - norm), _list(top.indices)
    return [
        [
            Candidate(token, chosen_logprobs[row], ranks[row]),
            *(
                Candidate(rival, rival_logprobs[row][place], place + 1)
                for place, rival in enumerate(rival_ids[row][: counts[row]])
                if rival != token
            ),
        ]
        for row, token in enumerate(tokens)
    ]


def _list(tensor: Tensor) -> Any:
    numbers: Any = tensor
    return cast("Any", numbers.tolist())
