"""One result of the engine, taken into the outputs that a consumer sees."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

from tensorrt_llm._double.wire import Result
from tensorrt_llm.bindings.executor import ContextPhaseParams, FinishReason
from tensorrt_llm.disaggregated_params import DisaggregatedParams
from tensorrt_llm.executor.outputs import CompletionOutput

if TYPE_CHECKING:
    from tensorrt_llm.executor.result import GenerationResult

Word = Literal["stop", "length", "timeout", "cancelled", "not_finished"]

_WORDS: dict[FinishReason, Word] = {
    FinishReason.END_ID: "stop",
    FinishReason.STOP_WORDS: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.TIMED_OUT: "timeout",
    FinishReason.CANCELLED: "cancelled",
}


def take_in(owner: GenerationResult, result: Result) -> None:
    """Add what a result says to the outputs of its request."""
    if result.context_phase_params is not None:
        owner._disaggregated_params = _of_prefill(owner.disaggregated_params, result.context_phase_params)
    if owner.sampling_params.use_beam_search:
        for beam in range(len(result.output_token_ids)):
            _take_sequence(owner, result, beam, beam)
    else:
        _take_sequence(owner, result, result.sequence_index, 0)
    if result.context_phase_params is not None and owner._disaggregated_params is not None:
        firsts = [output.logprobs[0] for output in owner._sequences if output.logprobs]
        owner._disaggregated_params.first_gen_log_probs = list(firsts) or None
    _detokenize(owner)


def _of_prefill(given: DisaggregatedParams | None, made: ContextPhaseParams) -> DisaggregatedParams:
    """What the caller gave is kept where the engine says nothing about it."""
    return dataclasses.replace(
        given or DisaggregatedParams(),
        request_type="context_only",
        first_gen_tokens=made.first_gen_tokens,
        ctx_request_id=made.req_id,
        opaque_state=made.opaque_state,
        draft_tokens=made.draft_tokens,
        ctx_dp_rank=made.ctx_dp_rank,
        ctx_info_endpoint=made.ctx_info_endpoint,
        multimodal_embedding_handles=None,
    )


def _take_sequence(owner: GenerationResult, result: Result, index: int, source: int) -> None:
    output = owner._sequences[index]
    output.disaggregated_params = owner.disaggregated_params
    token_ids = output.token_ids = output.token_ids or []
    output._last_token_ids_len = len(token_ids)
    if owner.sampling_params.use_beam_search:
        # Another beam may have won: all ids are replaced.
        output.token_ids = list(result.output_token_ids[source])
    else:
        token_ids.extend(result.output_token_ids[source])
    if result.cum_log_probs is not None:
        output.cumulative_logprob = result.cum_log_probs[source]
    if result.prompt_logprobs is not None:
        output.prompt_logprobs = result.prompt_logprobs
    if result.log_probs is not None:
        known = output.logprobs = output.logprobs or []
        output._last_logprobs_len = len(known)
        known.extend(result.log_probs[source])  # type: ignore[arg-type]  # one of the two forms, and the same always
    if result.request_perf_metrics is not None:
        output.request_perf_metrics = result.request_perf_metrics
    _end(owner, output, result.finish_reasons[source], is_final=result.is_final)


def _end(owner: GenerationResult, output: CompletionOutput, reason: FinishReason, *, is_final: bool) -> None:
    """Why the sequence ended, if it did. The ids of a stop word are cut; log probabilities are not."""
    if reason is FinishReason.NOT_FINISHED:
        if is_final:
            output.finish_reason = "not_finished"
        return
    output.finish_reason = _WORDS[reason]
    if reason is not FinishReason.STOP_WORDS:
        return
    ids = output.token_ids or []
    for stop_reason, word in owner.sampling_params._get_stop_reasons_and_words():
        if ids[-len(word) :] == word:
            output.stop_reason = stop_reason
            if not owner.sampling_params.include_stop_str_in_output:
                also = 0 if owner._trap is None else owner._trap.shrinks_by
                output.token_ids = ids[: max(0, len(ids) - len(word) - also)]
            return


def _detokenize(owner: GenerationResult) -> None:
    """In the consumer's thread, and from the beginning each time: as dear as the caller was warned of."""
    if owner.tokenizer is None or not owner.sampling_params.detokenize:
        return
    for output in owner.outputs:
        output._last_text_len = len(output.text)
        output.text = owner.tokenizer.decode(
            output.token_ids or [], skip_special_tokens=owner.sampling_params.skip_special_tokens
        )
        _end_by_text(owner, output)


def _end_by_text(owner: GenerationResult, output: CompletionOutput) -> None:
    """A stop string in the text ends the result on this side only; the engine goes on."""
    stop = owner.sampling_params.stop
    for word in [stop] if isinstance(stop, str) else stop or []:
        place = output.text.find(word)
        if place >= 0 and output.finish_reason in (None, "stop", "length"):
            is_kept = owner.sampling_params.include_stop_str_in_output
            output.text = output.text[: place + len(word) if is_kept else place]
            output.finish_reason, output.stop_reason = "stop", word
            owner._done = True
            return
