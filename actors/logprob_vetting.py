"""What an engine cannot mean by the logprobs of a request that asked for them."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.spec import GenerationSpec
from protocols.steps import Candidate, Delta, Position

# Sums of exponentials in 32 bits may leave the logprob of a certain token a hair above 0.
_ROUNDING = 1e-3


class LogprobVetting:
    """Of one request: what was asked for, and whether the prompt's were told already."""

    __slots__ = ("_has_output", "_prompt", "_vocab_size")

    def __init__(self, spec: GenerationSpec, vocab_size: int) -> None:
        self._has_output = spec.output.logprobs is not None
        # None where nobody asked, or once they were told.
        self._prompt = None if spec.output.prompt_logprobs is None else spec.prompt
        self._vocab_size = vocab_size

    @classmethod
    def needed(cls, spec: GenerationSpec, vocab_size: int) -> LogprobVetting | None:
        """None for a request that asked for nothing: it pays nothing."""
        output = spec.output
        return None if output.logprobs is output.prompt_logprobs is None else cls(spec, vocab_size)

    def flaw_of(self, delta: Delta) -> str | None:
        """Why the logprobs of a delta, whose tokens were vetted before, cannot be true."""
        flaw = None if self._prompt is None else self._flaw_of_prompt(self._prompt, delta)
        if flaw is None and self._has_output and delta.token_ids:
            flaw = self._flaw_of_list(delta.positions, delta.token_ids)
        return flaw

    def _flaw_of_prompt(self, prompt: tuple[int, ...], delta: Delta) -> str | None:
        """They are due with the first token at the latest."""
        told = delta.prompt_positions
        if told is None:
            return "the engine left out the logprobs of the prompt" if delta.token_ids else None
        self._prompt = None
        if type(told) is not list or len(told) != len(prompt):
            return "the engine gave logprobs for another number of prompt tokens"
        if told[0] is not None:
            return "the engine gave a logprob for the first token of a prompt"
        return self._flaw_of_list(told[1:], prompt[1:])

    def _flaw_of_list(
        self, positions: Sequence[Position | None] | None, token_ids: Sequence[int]
    ) -> str | None:
        if not isinstance(positions, list) or len(positions) != len(token_ids):
            return "the engine gave logprobs for another number of tokens"
        for position, token_id in zip(positions, token_ids, strict=True):
            if not isinstance(position, list):
                return "the engine gave logprobs that are not a list"
            if position and not (position[0].token_id == token_id and all(map(self._is_sound, position))):
                return "the engine gave a logprob that cannot be the token's"
        return None

    def _is_sound(self, candidate: Candidate) -> bool:
        """NaN is not: it compares as false."""
        return (
            type(candidate.rank) is int
            and 1 <= candidate.rank <= self._vocab_size
            and type(candidate.token_id) is int
            and 0 <= candidate.token_id < self._vocab_size
            and type(candidate.logprob) is float
            and candidate.logprob <= _ROUNDING
        )
