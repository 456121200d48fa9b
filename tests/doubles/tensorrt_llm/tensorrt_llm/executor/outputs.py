"""What a request's consumer reads: one output a sequence, and the log probability of one token.

The real import path of both is ``tensorrt_llm.executor.result``, which has them from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tensorrt_llm.bindings.executor import RequestPerfMetrics
    from tensorrt_llm.disaggregated_params import DisaggregatedParams

# A dictionary from token id to its log probability for each token, or plain numbers in the simple format.
TokenLogprobs = list[dict[int, "Logprob"]] | list[float]


@dataclass(slots=True)
class Logprob:
    """The natural logarithm of a token's probability; its rank among all tokens counts from 1."""

    logprob: float
    rank: int | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One sequence of a request, cumulative: ids, text and log probabilities since its first token.

    The properties that end in ``_diff`` cover the latest response of this very sequence; they keep their
    value while responses of other sequences arrive.
    """

    index: int
    text: str = ""
    token_ids: list[int] | None = field(default_factory=list[int])
    cumulative_logprob: float | None = None
    logprobs: TokenLogprobs | None = field(default_factory=list[dict[int, Logprob]])
    prompt_logprobs: TokenLogprobs | None = field(default_factory=list[dict[int, Logprob]])
    finish_reason: Literal["stop", "length", "timeout", "cancelled", "not_finished"] | None = None
    stop_reason: int | str | None = None
    generation_logits: object | None = None
    additional_context_outputs: dict[str, object] | None = None
    additional_generation_outputs: dict[str, object] | None = None

    disaggregated_params: DisaggregatedParams | None = None
    request_perf_metrics: RequestPerfMetrics | None = None

    # Where the latest response began. Hidden: neither part of the constructor nor printed.
    _last_text_len: int = field(default=0, init=False, repr=False)
    _last_token_ids_len: int = field(default=0, init=False, repr=False)
    _last_logprobs_len: int = field(default=0, init=False, repr=False)
    _incremental_states: dict[str, object] | None = field(default=None, init=False, repr=False)
    # The work of post-processing workers, when there are any.
    _postprocess_result: object | None = None

    @property
    def length(self) -> int:
        """How many tokens the sequence has."""
        return len(self.token_ids or ())

    @property
    def text_diff(self) -> str:
        """The text of the latest response."""
        return self.text[self._last_text_len :]

    @property
    def token_ids_diff(self) -> list[int]:
        """The ids of the latest response."""
        return (self.token_ids or [])[self._last_token_ids_len :]

    @property
    def logprobs_diff(self) -> TokenLogprobs:
        """The log probabilities of the latest response."""
        return (self.logprobs or [])[self._last_logprobs_len :]
