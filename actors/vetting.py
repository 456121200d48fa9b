"""What an engine cannot mean: the checks at the edge between an engine and everyone else."""

from __future__ import annotations

from actors.logprob_vetting import LogprobVetting
from protocols.spec import GenerationSpec
from protocols.steps import Delta, FinishReason

_STOP_REASONS = (int, str, type(None))


class Transcript:
    """What the engine has said of one request so far, per choice; knows what it cannot say next."""

    __slots__ = ("_ended", "_logprobs", "_max_tokens", "_n", "_prompt_tokens", "_tokens", "_vocab_size")

    def __init__(self, spec: GenerationSpec, vocab_size: int) -> None:
        self._n = spec.n
        self._max_tokens = spec.stop.max_tokens
        self._vocab_size = vocab_size
        self._prompt_tokens = len(spec.prompt)
        self._tokens = [0] * spec.n
        self._ended: set[int] = set()
        self._logprobs = LogprobVetting.needed(spec, vocab_size)

    def flaw_of(self, delta: Delta) -> str | None:
        """Note one delta; why it cannot be true, in words without content, or None when it can."""
        index, token_ids = delta.index, delta.token_ids
        if type(index) is not int or not 0 <= index < self._n:
            return "the engine produced a choice that was not asked for"
        if token_ids:
            if type(token_ids) is not list:
                return "the engine produced tokens that are not a list"
            for token in token_ids:
                if type(token) is not int or not 0 <= token < self._vocab_size:
                    return "the engine produced a token outside its vocabulary"
            tokens = self._tokens[index] + len(token_ids)
            if tokens > self._max_tokens:
                return "the engine produced more tokens than were asked for"
            if index in self._ended:
                return "the engine went on with a choice that had ended"
            self._tokens[index] = tokens
        flaw = None
        if delta.cached_tokens or self._logprobs is not None:
            flaw = self._flaw_of_findings(delta)
        if flaw is not None or (delta.finish_reason is None and delta.error is None and not delta.is_last):
            return flaw
        return self._flaw_of_end(delta)

    def _flaw_of_findings(self, delta: Delta) -> str | None:
        """Of what is told besides tokens: how much of the prompt was cached, and logprobs."""
        cached = delta.cached_tokens
        if cached and (type(cached) is not int or not 0 < cached <= self._prompt_tokens):
            return "the engine found more of the prompt in its cache than there is"
        return None if self._logprobs is None else self._logprobs.flaw_of(delta)

    def _flaw_of_end(self, delta: Delta) -> str | None:
        """For a delta that ends its choice, or the request."""
        reason = delta.finish_reason
        if delta.error is not None:
            return None if delta.is_last else "the engine failed a request and did not end it"
        if reason is None:
            return "the engine ended without a reason"
        if type(reason) is not FinishReason or type(delta.stop_reason) not in _STOP_REASONS:
            return "the engine gave a finish reason that is not known"
        self._ended.add(delta.index)
        if delta.is_last and reason is not FinishReason.CANCELLED and len(self._ended) < self._n:
            return "the engine ended a request before all of its choices"
        return None
