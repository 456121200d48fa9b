"""What a request has said so far, for its one consumer.

`_sequences` holds one output for each of ``best_of`` sequences; the consumer sees them through ``outputs``.
Responses are handled in the consumer's own thread or task, when it reads.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, cast

from tensorrt_llm._double.iterations import IterationResult
from tensorrt_llm._double.perf import metrics_of
from tensorrt_llm._double.queues import queues_here
from tensorrt_llm._double.received import take_in
from tensorrt_llm._double.wire import GenerationRequest, Response, Result
from tensorrt_llm.disaggregated_params import DisaggregatedParams
from tensorrt_llm.executor.outputs import CompletionOutput, Logprob, TokenLogprobs
from tensorrt_llm.executor.utils import EngineDeadError, ErrorResponse

if TYPE_CHECKING:
    from tensorrt_llm.executor.executor import GenerationExecutor
    from tensorrt_llm.sampling_params import SamplingParams
    from tensorrt_llm.tokenizing import Tokenizer

__all__ = [
    "CompletionOutput",
    "GenerationResult",
    "IterationResult",
    "Logprob",
    "TokenLogprobs",
]

# Raises what it is given as a request's error, or what waits in the background, if anything does.
ErrorHandler = Callable[..., None]


class GenerationResult:
    """The result of one request: an async iterator, an iterator, and awaitable, over its responses."""

    def __init__(
        self,
        generation_request: GenerationRequest,
        background_error_handler: ErrorHandler | None = None,
        executor: GenerationExecutor | None = None,
        disaggregated_params: DisaggregatedParams | None = None,
    ) -> None:
        self._generation_request = generation_request
        self._trap = generation_request.trap
        self.sampling_params: SamplingParams = generation_request.sampling_params
        self._streaming = generation_request.streaming
        self.postproc_params: object | None = None
        self._disaggregated_params = disaggregated_params
        self.trace_headers = generation_request.trace_headers
        self.tokenizer: Tokenizer | None = None
        self.queue, self.aqueue = queues_here()
        self._is_read = False
        self._done = False
        self._aborted = False
        self._error_msg: str | None = None
        self._responses = 0
        self.decoding_iter = 0
        self.cached_tokens = 0
        self.avg_decoded_tokens_per_iter: float | None = None
        self.per_pos_drafted: list[int] | None = None
        self.per_pos_accepted: list[int] | None = None
        self.time_breakdown_metrics: dict[str, object] | None = None
        self.metrics_dict: dict[object, object] = {}
        self.candidate_metrics: list[dict[object, object]] = []
        self._context_logits: object | None = None
        self._sequences = [CompletionOutput(i) for i in range(self.sampling_params.best_of or 1)]
        # Weak, as in the library: whoever drops the executor takes the errors' way out with it.
        self._executor = None if executor is None else weakref.ref(executor)
        self._background_error_handler = (
            None if background_error_handler is None else weakref.WeakMethod(background_error_handler)
        )

    @property
    def request_id(self) -> int:
        """The client id."""
        return self._generation_request.id

    id = request_id

    @property
    def prompt_token_ids(self) -> list[int]:
        """As they were given."""
        return self._generation_request.prompt_token_ids

    @property
    def outputs(self) -> list[CompletionOutput]:
        """One for each of ``n``. The best ones of more are found, and numbered anew, at every read."""
        sampling = self.sampling_params
        if self._trap is not None and self._trap.has_no_outputs and self._done:
            return []
        if sampling.use_beam_search or sampling.n == sampling.best_of:
            return self._sequences[: sampling.n]
        best = sorted(self._sequences, key=_likelihood, reverse=True)
        for place, output in enumerate(best):
            output.index = place
        return best[: sampling.n]

    @property
    def finished(self) -> bool:
        """Whether the final response, or an error, was read."""
        return self._done

    @property
    def error(self) -> str | None:
        """What a request that failed by itself was told."""
        return self._error_msg

    @property
    def disaggregated_params(self) -> DisaggregatedParams | None:
        """Those it was given, and for a prefill those that its final response made of them."""
        return self._disaggregated_params

    @property
    def context_logits(self) -> object | None:
        """Never given by the double."""
        return self._context_logits

    def abort(self) -> None:
        """Ask the engine to end it. Returns at once; AttributeError when the executor is gone."""
        assert self._executor is not None, "a result without an executor cannot be aborted"
        cast("GenerationExecutor", self._executor()).abort_request(self.request_id)
        self._aborted = True

    def aborted(self) -> bool:
        """Whether `abort` was called on this very object."""
        return self._aborted

    def clear_logprob_params(self) -> None:
        """Nothing is kept here that would have to go."""

    def result(self, timeout: float | None = None) -> GenerationResult:
        """Block until the end; the timeout is ignored. Raises as reading does."""
        while not self._done:
            self._result_step()
        return self

    async def aresult(self) -> GenerationResult:
        """Read to the end."""
        while not self._done:
            await self._aresult_step()
        return self

    def __await__(self) -> Generator[object, None, GenerationResult]:
        return self.aresult().__await__()

    def __iter__(self) -> Iterator[GenerationResult]:
        return self

    def __next__(self) -> GenerationResult:
        if self._done:
            raise StopIteration
        self._result_step()
        return self

    def __aiter__(self) -> AsyncIterator[GenerationResult]:
        return self

    async def __anext__(self) -> GenerationResult:
        if self._done:
            raise StopAsyncIteration
        await self._aresult_step()
        return self

    def __hash__(self) -> int:
        return hash(self.request_id)

    def __eq__(self, other: object) -> bool:
        return self is other

    def _exception(self, timeout: float | None = None) -> RuntimeError | None:
        try:
            self.result(timeout)
        except RuntimeError as exc:
            return exc
        return None

    def _result_step(self) -> None:
        self._handle_response(self.queue.get())

    async def _aresult_step(self) -> None:
        assert self.aqueue is not None, (
            "no event loop was running when the request was made: it cannot be awaited"
        )
        assert not self._is_read, "a result has one consumer"
        self._is_read = True
        try:
            response = await self.aqueue.get()
        finally:
            self._is_read = False
        self._handle_response(response)

    def _handle_response(self, response: object) -> None:
        """Take one message in. Raises RequestError, EngineDeadError, or what waits in the background."""
        trap = self._trap
        if trap is not None and trap.dead_after is not None and self._responses >= trap.dead_after:
            response = EngineDeadError(RuntimeError("the double was told to be dead"))
        self._responses += 1
        match response:
            case RuntimeError():
                # The engine is dead. Done, and no error: who reads again finds what looks like a success.
                self._done = True
                raise response
            case ErrorResponse():
                self._error_msg = response.error_msg
                self._done = True
                self._handle_background_error(response.error_msg)
            case Response(result=result):
                self._take_result(result)
                self._handle_background_error()
            case _:
                raise ValueError(f"unknown response of type {type(response).__name__}")

    def _take_result(self, result: Result) -> None:
        self._done = result.is_final
        self.decoding_iter = result.decoding_iter
        self.cached_tokens = result.cached_tokens
        self.avg_decoded_tokens_per_iter = result.avg_decoded_tokens_per_iter
        take_in(self, result)
        for index in range(len(result.output_token_ids)):
            output = self._sequences[index if self.sampling_params.use_beam_search else result.sequence_index]
            if output.finish_reason is not None and result.request_perf_metrics is not None:
                metrics = metrics_of(output, result, self.prompt_token_ids)
                self.candidate_metrics.append(metrics)
                self.metrics_dict.update(metrics)

    def _handle_background_error(self, error: str | None = None) -> None:
        """Without an executor there is nobody who raises: then only ``error`` is set."""
        handler = None if self._background_error_handler is None else self._background_error_handler()
        if handler is not None:
            handler(error)


def _likelihood(output: CompletionOutput) -> float:
    return float("-inf") if output.cumulative_logprob is None else output.cumulative_logprob
