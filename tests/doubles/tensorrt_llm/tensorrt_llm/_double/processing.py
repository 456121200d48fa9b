"""Logits processors, called in the engine's process by the library's contract.

They are called in the sampling of a whole batch: one that raises fails every request there is.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from protocols.spec import GenerationSpec, ProcessorEntry
from tensorrt_llm._double.wire import GenerationRequest, Settings

if TYPE_CHECKING:
    from torch import Tensor

    from tensorrt_llm.sampling_params import BatchedLogitsProcessor

# The one name under which the engine behind the double knows all of them.
NAME = "tensorrt-llm"


class Called:
    """The processors of one sequence. ids: of the request at the engine, and of the client."""

    def __init__(
        self, steps: list[Callable[..., object]], ids: tuple[int, int], note: Callable[[str], None]
    ) -> None:
        self._steps = steps
        self._ids = ids
        self._note = note

    def __call__(self, input_ids: list[int], logits: Tensor) -> None:
        """``logits``: ``[vocabulary]``; processors see one beam in front of that."""
        engine_id, client_id = self._ids
        beams = logits.unsqueeze(0)
        try:
            for step in self._steps:
                step(engine_id, beams, [list(input_ids)], None, client_id)
        except BaseException as exc:
            self._note(str(exc))
            raise


class Processing:
    """All processors, by tickets. Requests enter in the event loop, instances are made anywhere."""

    def __init__(self, settings: Settings) -> None:
        self._batched = settings.batched_processor
        self._tickets = itertools.count(1)
        self._known: dict[int, tuple[list[Callable[..., object]], tuple[int, int]]] = {}
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
        self._known[ticket] = (steps, (engine_id, request.id))
        entry = ProcessorEntry(name=NAME, options={"ticket": ticket})
        return msgspec.structs.replace(spec, processors=(entry,))

    def make(self, *, ticket: int) -> Called:
        """For one sequence: copies, as the library makes for every one of several."""
        steps, ids = self._known[ticket]

        def note(text: str) -> None:
            self.failures[ids[1]] = text

        return Called([copy.deepcopy(step) for step in steps], ids, note)


def _as_batch(processor: BatchedLogitsProcessor) -> Callable[..., None]:
    def call(
        engine_id: int, logits: Any, token_ids: list[list[int]], stream_ptr: Any, client_id: int
    ) -> None:
        processor([engine_id], [logits], [token_ids], stream_ptr, [client_id])

    return call
