"""What a request is told beside its token ids: how likely they were, and what else could have stood there.

Only requests that asked have a writer; it lives with their outbox and is called by its reader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from protocols.chunks import GenerateChunk, TopLogprob
from protocols.steps import Delta, Position

# What OpenAI's interface says in place of minus infinity, which JSON does not know.
LEAST_LOGPROB = -9999.0


class LogprobWriter:
    """Adds logprobs to the chunks of one request.

    prompt_positions: one for each prompt token; whoever hears of them first writes them here.
    """

    __slots__ = ("_sums", "prompt_positions")

    def __init__(self) -> None:
        self.prompt_positions: list[Position | None] | None = None
        # By choice; not a number once a token's own value was missing.
        self._sums: dict[int, float] = {}

    @staticmethod
    def is_told(delta: Delta) -> bool:
        """Whether every token of the delta has its own value; such deltas share no chunk with others."""
        return delta.positions is not None and all(delta.positions)

    def write(self, chunk: GenerateChunk, positions: Sequence[Position]) -> None:
        """Lists as long as the chunk's ids. A chunk with a token whose own value is missing gets none at all.

        positions: of the chunk's tokens, the chosen one first; empty where it is not known.
        """
        index = chunk["index"]
        if not positions or not all(positions):
            self._sums[index] = math.nan
            return
        chosen = [position[0].logprob for position in positions]
        chunk["log_probs"] = [_shown(logprob) for logprob in chosen]
        chunk["top_logprobs"] = [_entries(position) for position in positions]
        self._sums[index] = total = self._sums.get(index, 0.0) + sum(chosen)
        if math.isfinite(total):
            chunk["cum_log_probs"] = total

    def close(self, chunk: GenerateChunk) -> None:
        """The last chunk of the request carries what was found about its prompt."""
        if self.prompt_positions is not None:
            told = [None if position is None else _by_token(position) for position in self.prompt_positions]
            chunk["engine_data"] = {"prompt_logprobs": told}


def _entries(position: Position) -> list[TopLogprob]:
    """Most likely first; the chosen token is among them, wherever it ranks."""
    return [
        {
            "rank": candidate.rank,
            "token_id": candidate.token_id,
            "token": None,
            "logprob": _shown(candidate.logprob),
        }
        for candidate in sorted(position, key=lambda candidate: candidate.rank)
    ]


def _by_token(position: Position) -> dict[str, dict[str, Any]]:
    """As the framework reads them: ids as text."""
    return {
        str(candidate.token_id): {"logprob": _shown(candidate.logprob), "rank": candidate.rank}
        for candidate in position
    }


def _shown(logprob: float) -> float:
    """In the range that clients can read; rounding may leave a certain token a hair above 0."""
    return min(max(logprob, LEAST_LOGPROB), 0.0)
