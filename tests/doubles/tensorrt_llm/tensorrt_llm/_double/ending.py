"""Why a sequence ends, in the library's words: the end id first, then stop words, then the length."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.steps import Delta
from protocols.steps import FinishReason as Reason
from tensorrt_llm._double.sequences import Sequence
from tensorrt_llm.bindings.executor import FinishReason
from tensorrt_llm.executor.outputs import Logprob

# Of an id that nobody computed.
_UNKNOWN = Logprob(-1.0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRules:
    """Of one request.

    most_tokens: of one sequence. early_stops: stop words that the engine behind was not told of. end_id: None
    without one. has_length_first: a stop word that is the last token which is allowed is not noticed.
    """

    most_tokens: int
    early_stops: frozenset[int]
    end_id: int | None
    has_length_first: bool

    def reason_of(self, delta: Delta, sequence: Sequence) -> FinishReason:
        """What a delta means whose tokens the sequence has. May add the end id to it."""
        is_full = len(sequence.ids) >= self.most_tokens
        match delta.finish_reason:
            case Reason.EOS:
                return FinishReason.END_ID
            case Reason.LENGTH:
                return FinishReason.LENGTH
            case Reason.STOP if delta.stop_reason is not None:
                return FinishReason.LENGTH if is_full and self.has_length_first else FinishReason.STOP_WORDS
            case None if self.early_stops.intersection(delta.token_ids):
                return FinishReason.STOP_WORDS
            case None:
                return FinishReason.NOT_FINISHED
            case _:
                return self._end_of_grammar(sequence, is_full=is_full)

    def _end_of_grammar(self, sequence: Sequence, *, is_full: bool) -> FinishReason:
        """A complete one leaves the library's model its end id to say, and nothing else."""
        if self.end_id is None:
            return FinishReason.END_ID
        if is_full:
            return FinishReason.LENGTH
        sequence.add([self.end_id], [{self.end_id: _UNKNOWN}])
        return FinishReason.END_ID
