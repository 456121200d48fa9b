"""Logits processors, called in the engine's process by the library's contract.

They are called in the sampling of a whole batch: one that raises fails every request there is.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from protocols.spec import GenerationSpec, ProcessorEntry
from tensorrt_llm._double.wire import GenerationRequest, Settings

if TYPE_CHECKING:
    from torch import Tensor

    from tensorrt_llm.sampling_params import BatchedLogitsProcessor

# The one name under which the engine behind the double knows all of them.
NAME = "tensorrt-llm"


@dataclass(frozen=True, slots=True)
class Calling:
    """How the processors of one request are called.

    prompt_tokens: its length. parts: how many passes the prompt takes; they are called after each, and only
    the last one counts. is_overlapped: a step begins before the token of the one before is known, so the ids
    that are shown lack it.
    """

    engine_id: int
    prompt_tokens: int
    parts: int
    is_overlapped: bool
    note: Callable[[str], None]


class Called:
    """The processors of one sequence."""

    def __init__(self, steps: list[Callable[..., object]], calling: Calling) -> None:
        self._steps = steps
        self._calling = calling
        self._is_first = True

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        """``logits``: ``[vocabulary]``; processors see a beam, and another axis, in front of that."""
        calling = self._calling
        ids = list(input_ids)
        if calling.is_overlapped and len(ids) > calling.prompt_tokens:
            ids = ids[:-1]
        rows = logits.unsqueeze(0).unsqueeze(0)
        early = calling.parts - 1 if self._is_first else 0
        self._is_first = False
        try:
            for _ in range(early):
                self._run(rows.clone(), ids)
            self._run(rows, ids)
        except BaseException as exc:
            calling.note(str(exc))
            raise

    def _run(self, rows: Tensor, ids: list[int]) -> None:
        """Neither a stream nor a client id is given, as by the PyTorch backend."""
        for step in self._steps:
            count = len(inspect.signature(step).parameters)
            assert 4 <= count <= 5, "a processor's signature must have 4 or 5 parameters"
            step(self._calling.engine_id, rows, [list(ids)], None, None)


class Processing:
    """All processors, by tickets. Requests enter in the event loop, instances are made anywhere."""

    def __init__(self, settings: Settings) -> None:
        self._batched = settings.batched_processor
        self._tickets = itertools.count(1)
        self._pass_tokens = settings.max_num_tokens
        self._is_overlapped = settings.is_overlapped
        self._known: dict[int, tuple[list[Callable[..., object]], Calling]] = {}
        # What a processor raised, by client id.
        self.failures: dict[int, str] = {}

    def attach(self, spec: GenerationSpec, request: GenerationRequest, engine_id: int) -> GenerationSpec:
        """The spec with the request's processors, if it has any."""
        given = request.sampling_params.logits_processor
        steps: list[Callable[..., object]] = [given] if callable(given) else [*(given or [])]
        if request.sampling_params.apply_batched_logits_processor and self._batched is not None:
            steps = [*steps, _as_batch(self._batched)]
        if not steps:
            return spec
        ticket = next(self._tickets)
        self._known[ticket] = (steps, self._calling(request, engine_id))
        entry = ProcessorEntry(name=NAME, options={"ticket": ticket})
        return msgspec.structs.replace(spec, processors=(entry,))

    def make(self, *, ticket: int) -> Called:
        """For one sequence: copies, as the library makes for every one of several."""
        steps, calling = self._known[ticket]
        return Called([copy.deepcopy(step) for step in steps], calling)

    def _calling(self, request: GenerationRequest, engine_id: int) -> Calling:
        def note(text: str) -> None:
            self.failures[request.id] = text

        prompt_tokens = len(request.prompt_token_ids)
        parts = max(1, -(-prompt_tokens // self._pass_tokens))
        return Calling(engine_id, prompt_tokens, parts, self._is_overlapped, note)


def _as_batch(processor: BatchedLogitsProcessor) -> Callable[..., None]:
    def call(
        engine_id: int, logits: Any, token_ids: list[list[int]], stream_ptr: Any, client_id: Any
    ) -> None:
        processor([engine_id], [logits], [token_ids], stream_ptr, [client_id])

    return call
