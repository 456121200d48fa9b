"""One request in the engine's process: what its engine says, made into the responses of the library."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from protocols.steps import Delta, Position
from protocols.steps import FinishReason as Reason
from tensorrt_llm._double.ending import EndRules
from tensorrt_llm._double.likelihoods import entry_of, prompt_entries
from tensorrt_llm._double.mapping import stage_of
from tensorrt_llm._double.reusing import PromptBlocks
from tensorrt_llm._double.script import Said, Script, Trap
from tensorrt_llm._double.sequences import Sequence
from tensorrt_llm._double.wire import GenerationRequest, Response, Result
from tensorrt_llm.bindings.executor import (
    ContextPhaseParams,
    FinishReason,
    RequestPerfMetrics,
    RequestType,
    TimingMetrics,
)
from tensorrt_llm.executor.outputs import TokenLogprobs
from tensorrt_llm.executor.utils import ErrorResponse
from tensorrt_llm.sampling_params import SamplingParams

Message = Response | ErrorResponse

_BY_WORD = {
    "length": FinishReason.LENGTH,
    "stop": FinishReason.END_ID,
    "not_finished": FinishReason.NOT_FINISHED,
}


class LiveRequest:
    """Event loop only. blocks: of its prompt. hand_over: leaves a prefill's cache, given its first tokens.

    is_over: its last message was made. is_unwanted: it is over, and the engine behind does not know.
    """

    def __init__(
        self,
        request: GenerationRequest,
        engine_id: int,
        script: Script,
        rules: EndRules,
        interval: int,
        *,
        blocks: PromptBlocks,
        hand_over: Callable[[list[int]], ContextPhaseParams],
    ) -> None:
        self.request = request
        self.engine_id = engine_id
        self.stage = stage_of(request)
        self.is_over = False
        self.is_unwanted = False
        self.cached_tokens = 0
        # Of the prefill: they stand at the beginning, whatever this engine would have said.
        self.first_tokens: list[int] = []
        self._script = script
        self._rules = rules
        self._trap = request.trap or Trap()
        self._blocks = blocks
        self._hand_over = hand_over
        # Of the prompt, as they were computed; and how many of its tokens were not.
        self._prompt_positions: list[Position | None] | None = None
        self._reused = 0
        sampling = request.sampling_params
        is_whole = not request.streaming or self._trap.only_at_finish
        self._interval = 2**31 if is_whole else interval
        self.sequences = [Sequence(place) for place in range(sampling.best_of or sampling.n)]
        self._responses = 0
        # Tokens that still come after an abort.
        self._to_go_on: int | None = None
        now_s = time.monotonic()
        self._moments = TimingMetrics(arrival_time=timedelta(seconds=now_s))
        self.is_scheduled = False

    @property
    def token_count(self) -> int:
        """Of all sequences."""
        return sum(len(each.ids) for each in self.sequences)

    def on_scheduled(self) -> None:
        """The engine behind the double has been given it."""
        self.is_scheduled = True
        if self.request.sampling_params.prompt_logprobs is not None:
            # The engine behind computes the whole prompt for them.
            self.cached_tokens = self._reused = self._blocks.reusable
        self._moments.first_scheduled_time = timedelta(seconds=time.monotonic())

    def on_transfer(self, began_s: float, ended_s: float) -> None:
        """A prefill's cache has come, in monotonic seconds."""
        self._moments.kv_cache_transfer_start = timedelta(seconds=began_s)
        self._moments.kv_cache_transfer_end = timedelta(seconds=ended_s)

    def on_delta(self, delta: Delta) -> list[Message]:
        """What the engine behind the double says of it."""
        if self.is_over:
            return []
        if self._to_go_on is not None:
            self._to_go_on -= len(delta.token_ids)
        if delta.error is not None:
            return [self.fail(delta.error)]
        if delta.finish_reason is Reason.CANCELLED:
            return self.cancel()
        self.cached_tokens = max(self.cached_tokens, delta.cached_tokens)
        sequence = self.sequences[delta.index]
        if sequence.is_ended:
            return []
        self._add(sequence, delta)
        reason = self._rules.reason_of(delta, sequence)
        messages = self._spring(sequence)
        if messages is not None:
            return messages
        sequence.is_ended = reason is not FinishReason.NOT_FINISHED
        is_final = all(each.is_ended for each in self.sequences)
        # The engine behind goes on where a stop word was found here.
        self.is_unwanted = is_final and not delta.is_last
        return self._told(sequence, reason, is_final=is_final)

    def say(self, said: Said, *, is_final: bool) -> list[Message]:
        """A response of the script's."""
        self.on_first_token()
        sequence = self.sequences[said.index]
        sequence.add(list(said.ids), [entry_of([], each, None) for each in said.ids])
        self.is_over = is_final
        reason = FinishReason[said.finish] if said.finish else FinishReason.NOT_FINISHED
        return [self._response(sequence, reason, is_final=is_final)]

    def fail(self, text: str) -> Message:
        """The request's own error; it is the last message."""
        self.is_over = True
        return ErrorResponse(self.request.id, text, self.engine_id)

    def cancel(self) -> list[Message]:
        """A final response for every sequence that is still open."""
        return self._end_all(FinishReason.CANCELLED)

    def on_abort(self) -> bool:
        """Whether it ends now; otherwise it does so when it has said what a trap makes it say."""
        if self._trap.ignores_abort or not self._trap.goes_on_after_abort:
            return True
        if self._to_go_on is None:
            self._to_go_on = self._trap.goes_on_after_abort
        return False

    def on_first_token(self) -> None:
        """Now, unless it was before."""
        self._blocks.on_computed()
        if not self._moments.first_token_time:
            self._moments.first_token_time = timedelta(seconds=time.monotonic())

    def _end_all(self, reason: FinishReason) -> list[Message]:
        self.is_over = True
        still_open = [each for each in self.sequences if not each.is_ended]
        return [
            self._response(each, reason, is_final=place == len(still_open) - 1)
            for place, each in enumerate(still_open)
        ]

    def _add(self, sequence: Sequence, delta: Delta) -> None:
        sampling = self.request.sampling_params
        self._prompt_positions = self._prompt_positions or delta.prompt_positions
        if sampling.prompt_logprobs is not None and self._prompt_positions and not sequence.prompt_logprobs:
            sequence.prompt_logprobs = self._prompt_entries(sampling, self._prompt_positions, delta)
        if not delta.token_ids:
            return
        self.on_first_token()
        ids = list(delta.token_ids)
        if self.first_tokens and not sequence.ids:
            several = len(self.first_tokens) == len(self.sequences)
            ids[0] = self.first_tokens[sequence.index if several else 0]
        positions = delta.positions or [[] for _ in ids]
        entries = [
            entry_of(position, token, sampling.logprobs, self._trap.ranks)
            for token, position in zip(ids, positions, strict=True)
        ]
        sequence.add(ids, entries)

    def _prompt_entries(
        self, sampling: SamplingParams, positions: list[Position | None], delta: Delta
    ) -> TokenLogprobs:
        """Of what was not computed there are none, and the names of the others begin with the prompt."""
        first = delta.positions[0] if delta.positions else []
        prompt, names = self.request.prompt_token_ids, None
        if self._trap.names_prompt_inputs:
            names = prompt
        elif self._reused:
            names = prompt[1:]
        return prompt_entries(positions, first, sampling, names, self._reused)

    def _spring(self, sequence: Sequence) -> list[Message] | None:
        """What a trap makes of it, if one closes here."""
        trap, count = self._trap, len(sequence.ids)
        if self._to_go_on is not None and self._to_go_on <= 0:
            self.is_unwanted = True
            return self.cancel()
        if trap.late_error is not None and count >= trap.late_error_after:
            self.is_unwanted = True
            return [self.fail(trap.late_error)]
        if trap.timeout_after is not None and count >= trap.timeout_after:
            self.is_unwanted = True
            return self._end_all(FinishReason.TIMED_OUT)
        return None

    def _told(self, sequence: Sequence, reason: FinishReason, *, is_final: bool) -> list[Message]:
        is_end = reason is not FinishReason.NOT_FINISHED
        is_due = len(sequence.unsaid) >= self._interval or (sequence.is_silent and self._interval < 2**31)
        if not (is_end or (is_due and sequence.unsaid)):
            return []
        self.is_over = is_final
        return [self._response(sequence, reason, is_final=is_final)]

    def _response(self, sequence: Sequence, reason: FinishReason, *, is_final: bool) -> Message:
        self._responses += 1
        self._moments.last_token_time = timedelta(seconds=time.monotonic())
        is_end = reason is not FinishReason.NOT_FINISHED
        sequence.is_ended = is_end
        sequence.reason = reason
        context = None
        if (
            self.stage is RequestType.REQUEST_TYPE_CONTEXT_ONLY
            and is_final
            and reason is not FinishReason.CANCELLED
        ):
            context = self._hand_over([each.ids[0] for each in self.sequences if each.ids])
            reason = reason if self._script.context_finish is None else _BY_WORD[self._script.context_finish]
        result = self._result(sequence, reason, is_final=is_final)
        result.context_phase_params = context
        if is_end and self.request.sampling_params.return_perf_metrics:
            result.request_perf_metrics = RequestPerfMetrics(
                timing_metrics=self._moments, iter=self._responses
            )
        return Response(self.request.id, result)

    def _result(self, sequence: Sequence, reason: FinishReason, *, is_final: bool) -> Result:
        sampling = self.request.sampling_params
        is_beam = sampling.use_beam_search
        said = self.sequences if is_beam else [sequence]
        new = [list(each.ids) if is_beam else each.take_ids() for each in said]
        entries = [each.take_entries(sampling, self._trap, self._is_first_unknown) for each in said]
        # Sums of samples are made of log probabilities that somebody asked for.
        is_ranked = is_beam or (sampling.best_of != sampling.n and sampling.logprobs is not None)
        return Result(
            sequence_index=sequence.index,
            output_token_ids=new,
            finish_reasons=[each.reason if is_beam else reason for each in said],
            is_final=is_final,
            log_probs=None if sampling.logprobs is None else entries,
            cum_log_probs=[each.likelihood for each in said] if is_ranked else None,
            prompt_logprobs=sequence.prompt_logprobs,
            decoding_iter=self._responses,
            cached_tokens=self.cached_tokens,
            avg_decoded_tokens_per_iter=1.0,
        )

    @property
    def _is_first_unknown(self) -> bool:
        """A decode knows the first token's likelihood only from its prefill."""
        params = self.request.disaggregated_params
        is_decode = self.stage is RequestType.REQUEST_TYPE_GENERATION_ONLY
        return is_decode and params is not None and not params.first_gen_log_probs
