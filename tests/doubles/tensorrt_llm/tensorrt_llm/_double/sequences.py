"""One sequence of a request in the engine's process: what it has, and what of that was not told yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorrt_llm._double.script import Trap
from tensorrt_llm.bindings.executor import FinishReason
from tensorrt_llm.executor.outputs import Logprob, TokenLogprobs
from tensorrt_llm.sampling_params import SamplingParams


@dataclass(slots=True)
class Sequence:
    """likelihood: the sum of its tokens' log probabilities, as far as they were computed.
    prompt_logprobs: told again with each of its responses."""

    index: int
    ids: list[int] = field(default_factory=list[int])
    unsaid: list[int] = field(default_factory=list[int])
    likelihood: float = 0.0
    is_silent: bool = True
    is_ended: bool = False
    reason: FinishReason = FinishReason.NOT_FINISHED
    prompt_logprobs: TokenLogprobs | None = None
    entries: list[dict[int, Logprob]] = field(default_factory=list[dict[int, Logprob]])
    told_entries: int = 0

    def add(self, ids: list[int], entries: list[dict[int, Logprob]]) -> None:
        """New tokens, each with its candidates."""
        self.ids += ids
        self.unsaid += ids
        self.entries += entries
        self.likelihood += sum(entry[token].logprob for token, entry in zip(ids, entries, strict=True))

    def take_ids(self) -> list[int]:
        """What was not said yet."""
        ids, self.unsaid = self.unsaid, []
        self.is_silent = False
        return ids

    def take_entries(self, sampling: SamplingParams, trap: Trap, is_first_unknown: bool) -> TokenLogprobs:
        """What was not told yet, in the form that was asked for."""
        first = self.told_entries
        new, self.told_entries = self.entries[first:], len(self.entries)
        if first == 0 and (trap.misses_first_logprob or is_first_unknown):
            new = new[1:]
            ids = self.ids[1:]
        else:
            ids = self.ids[first:]
        if sampling.logprobs_simple_format:
            return [entry[token].logprob for token, entry in zip(ids, new, strict=True)]
        return new
