"""From what TensorRT-LLM repeats of an answer to what is new in it.

Its results are cumulative: after every response the same object shows the whole of every choice, of which
one has changed. A list of ids may get shorter again, a choice may go on after its end was told, and an
error is raised once and looks like success from then on. What is told here is told once, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from actors.engines.trtllm.answers.choice import Choice
from actors.engines.trtllm.answers.logprobs import positions_of, prompt_positions_of
from protocols.spec import GenerationSpec, Stage
from protocols.steps import Delta, EngineId, EngineTiming, FinishReason, Position


@dataclass(frozen=True, slots=True)
class Reading:
    """What else can be read off a result.

    encode: a hand-off as JSON; raises ValueError for what cannot be sent. timing_of: of one output.
    """

    encode: Callable[[Any], dict[str, Any]]
    timing_of: Callable[[Any], EngineTiming | None]


class AnswerIncomplete(Exception):
    """The engine has ended a request and does not say how. The text is the request's error."""


class FollowedRequest:
    """One request's results, read in the event loop. is_over: its last delta has been told.

    failure: why it fails, known while the engine still has it: told at its end, and nothing else.
    """

    def __init__(self, engine_id: EngineId, spec: GenerationSpec, reading: Reading) -> None:
        self._engine_id = engine_id
        self._spec = spec
        self._reading = reading
        self._choices = [Choice(index, spec.stop) for index in range(spec.n)]
        # Ended last while the engine still had the request: its end is part of the last delta.
        self._withheld: Choice | None = None
        self.failure: str | None = None
        # What is known at the end only: a list that is ranked anew, or rewritten, says nothing before.
        self._is_told_at_end = spec.search is not None
        self.is_over = False
        self.has_tokens = False

    @property
    def is_enough(self) -> bool:
        """Whether nothing more will be told but the end, be it that the engine does not know yet."""
        return self.failure is not None or all(choice.is_ended for choice in self._choices)

    def hear(self, result: Any) -> list[Delta]:
        """After each response: what is new, and with a finished one the last delta."""
        if self.is_over or (self._is_told_at_end and not result.finished):
            return []
        deltas = self._news(result)
        if self.failure is not None:
            return self.fail(self.failure) if result.finished else []
        return self._ended(deltas, result) if result.finished else deltas

    def fail(self, error: str) -> list[Delta]:
        """The request cannot go on. Nothing where its last delta has been told."""
        if self.is_over:
            return []
        self.is_over = True
        still_open = next((choice for choice in self._choices if not choice.is_ended), self._withheld)
        index = 0 if still_open is None else still_open.index
        return [Delta(self._engine_id, [], index, is_last=True, error=error)]

    def drop(self) -> list[Delta]:
        """The engine was told to end it before its first token, and will not say that it has."""
        if self.failure is not None:
            return self.fail(self.failure)
        if self.is_over:
            return []
        self.is_over = True
        return [self._closing(self._choices[0], None)]

    def _news(self, result: Any) -> list[Delta]:
        """Of every choice that is open. Nothing of a request that has failed, which `failure` says then."""
        deltas: list[Delta] = []
        if self.failure is not None:
            return deltas
        try:
            for choice, output in zip(self._choices, result.outputs, strict=False):
                if not choice.is_ended:
                    self._hear_choice(choice, output, result, deltas)
        except AnswerIncomplete as exc:
            self.failure = str(exc)
        return deltas

    def _hear_choice(self, choice: Choice, output: Any, result: Any, deltas: list[Delta]) -> None:
        first = choice.told
        token_ids = choice.hear(output)
        reason, stop_reason = choice.reason, choice.stop_reason
        if reason is not None and not result.finished and self.is_enough:
            self._withheld, reason, stop_reason = choice, None, None
        if not token_ids and reason is None:
            return
        cached_tokens, prompt_positions = self._found(result) if token_ids else (0, None)
        deltas.append(
            Delta(
                self._engine_id,
                token_ids,
                choice.index,
                reason,
                stop_reason=stop_reason,
                cached_tokens=cached_tokens,
                positions=self._positions(output, token_ids, first),
                prompt_positions=prompt_positions,
            )
        )

    def _found(self, result: Any) -> tuple[int, list[Position | None] | None]:
        """What is told of the prompt, with the first tokens. Raises AnswerIncomplete."""
        if self.has_tokens:
            return 0, None
        self.has_tokens = True
        spec = self._spec
        cached_tokens = min(int(result.cached_tokens or 0), len(spec.prompt))
        asked = spec.output.prompt_logprobs
        if asked is None:
            return cached_tokens, None
        return cached_tokens, prompt_positions_of(self._prompt_entries(result), spec.prompt, asked)

    def _prompt_entries(self, result: Any) -> Sequence[Any]:
        """Raises AnswerIncomplete where some would be another token's: those of reused tokens are missing.

        They are counted from the prompt's beginning all the same. Samples of one request may reuse what the
        first of them computed, and a result that is read at its end tells that of any: there it does not
        count, unless the prompt is too short for the number of entries to show it.
        """
        needed = len(self._spec.prompt) - 1
        entries: Sequence[Any] = max((output.prompt_logprobs or () for output in result.outputs), key=len)
        is_doubtful = self._spec.search is None or needed < 2
        if len(entries) < needed or (is_doubtful and result.cached_tokens):
            raise AnswerIncomplete("the engine tells logprobs of a part of the prompt only")
        return entries

    def _positions(self, output: Any, token_ids: list[int], first: int) -> list[Position] | None:
        asked = self._spec.output.logprobs
        if asked is None or not token_ids:
            return None
        return positions_of(output.logprobs, token_ids, first, len(output.token_ids), asked)

    def _ended(self, deltas: list[Delta], result: Any) -> list[Delta]:
        """The engine has let the request go: the last delta says so."""
        try:
            last = self._last_delta(deltas, result)
        except AnswerIncomplete as exc:
            return [*deltas, *self.fail(str(exc))]
        self.is_over = True
        return [*deltas, last]

    def _last_delta(self, deltas: list[Delta], result: Any) -> Delta:
        """Taken from the end of ``deltas``, or made. Raises AnswerIncomplete."""
        if result.error is not None:
            raise AnswerIncomplete("the engine failed on this request")
        if not result.outputs:
            raise AnswerIncomplete("the engine ended the request without an answer")
        output = result.outputs[0]
        is_cancelled = any(choice.reason is FinishReason.CANCELLED for choice in self._choices)
        if self._spec.stage is Stage.PREFILL and not is_cancelled:
            told = deltas.pop() if deltas else Delta(self._engine_id, [])
            return self._handed_over(told, output)
        if not self.is_enough and not is_cancelled:
            raise AnswerIncomplete(_why_unfinished(result.outputs))
        timing = self._reading.timing_of(output)
        if self.is_enough and deltas and deltas[-1].finish_reason is not None:
            return deltas.pop().as_last(timing)
        unfinished = next((choice for choice in self._choices if not choice.is_ended), None)
        return self._closing(unfinished or self._withheld or self._choices[-1], timing)

    def _closing(self, choice: Choice, timing: EngineTiming | None) -> Delta:
        """A last delta of its own, for a choice whose tokens and end were told before, or will not come."""
        return Delta(
            self._engine_id,
            [],
            choice.index,
            choice.reason or FinishReason.CANCELLED,
            is_last=True,
            stop_reason=choice.stop_reason,
            timing=timing,
        )

    def _handed_over(self, told: Delta, output: Any) -> Delta:
        """Never "stop": a frontend would take the first token for the whole answer."""
        if output.finish_reason == "timeout":
            raise AnswerIncomplete(_why_unfinished([output]))
        if output.disaggregated_params is None:
            raise AnswerIncomplete("the engine handed no KV cache over")
        try:
            handoff = self._reading.encode(output.disaggregated_params)
        except ValueError:
            raise AnswerIncomplete("the engine handed over what cannot be sent") from None
        return told.as_handoff(handoff, self._reading.timing_of(output))


def _why_unfinished(outputs: Sequence[Any]) -> str:
    if any(output.finish_reason == "timeout" for output in outputs):
        return "the engine's own time-out for a request passed"
    return "the engine ended the request without a reason"
