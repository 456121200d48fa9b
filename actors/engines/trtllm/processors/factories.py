"""Logits processors of a request, as TensorRT-LLM wants them: an object that is pickled and called elsewhere.

What it needs travels with it as plain data; the operator's modules are imported where it arrives, and only
there, so that one that cannot be imported fails its request and not the process that unpickles everything.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from actors.engines.trtllm.processors.spool import Spool
from actors.engines.trtllm.requests.sampling import stop_ids
from protocols.spec import GenerationSpec, ProcessorEntry, Stage
from protocols.steps import EngineId

if TYPE_CHECKING:
    from torch import Tensor

    from actors.engines.trtllm.processors.steersman import Steersman

Factory = Callable[..., Any]


class NotPicklable(Exception):
    """A factory that cannot be found again in another process. The text names it, and says why."""


@dataclass(frozen=True, slots=True)
class Factories:
    """Factories of logits processors by name, as they travel; pickled once, and not for every request."""

    pickled: Mapping[str, bytes]

    @classmethod
    def of(cls, factories: Mapping[str, Factory]) -> Factories:
        """Raises NotPicklable."""
        return cls({name: _pickled(name, factory) for name, factory in factories.items()})

    def chosen(self, entries: Sequence[ProcessorEntry]) -> dict[str, bytes]:
        """Only those that a request needs."""
        return {entry.name: self.pickled[entry.name] for entry in entries}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What goes to the engine's process with a request.

    factories: by name, pickled. spool: path of the request's file. prompt_tokens: length of the prompt.
    end_id: what ends a sequence, and what the engine does not allow before ``min_tokens``; below 0: nothing.
    most_sequences: the request has no more. is_overlapped, has_grammar: see `SteeredSequence`.
    """

    entries: tuple[ProcessorEntry, ...]
    factories: Mapping[str, bytes]
    spool: str
    prompt_tokens: int
    min_tokens: int
    end_id: int
    most_sequences: int
    is_overlapped: bool
    has_grammar: bool


class EngineProcessor:
    """What `SamplingParams` takes as ``logits_processor``.

    The engine pickles it to each of its ranks, and copies it there for each choice: wherever there is a new
    one, it begins anew. What those of a process know together, their `Steersman` knows.
    """

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self._steersman: Steersman | None = None
        # Which of the copies this is.
        self._copy = 0

    def __reduce__(self) -> tuple[type[EngineProcessor], tuple[Orders]]:
        return EngineProcessor, (self.orders,)

    def __call__(
        self,
        req_id: int,
        logits: Tensor,
        token_ids: Sequence[Sequence[int]],
        stream_ptr: int | None,
        client_id: int | None = None,
    ) -> None:
        """In the engine's loop, for every token of every sequence. Raises nothing.

        req_id: the engine's own id, mostly another one for every choice. logits: ``[..., vocabulary]``,
        changed in place. token_ids: of each beam, prompt and output so far. stream_ptr: address of the CUDA
        stream the row belongs to; None is the current one. client_id: not used. It may be None; which
        request this is, and which call of the library's, the spool's path says.
        """
        # What goes wrong here is in the spool already, or the device is gone, which the engine will notice.
        with suppress(Exception):
            self._at_work().steer((self._copy, req_id), logits, token_ids, stream_ptr)

    def _at_work(self) -> Steersman:
        if self._steersman is None:
            # Only the engine's process needs torch for it.
            from actors.engines.trtllm.processors.steersman import steersman_of  # noqa: PLC0415

            self._steersman = steersman_of(self.orders)
            self._copy = self._steersman.join()
        return self._steersman


def attach(
    spec: GenerationSpec, engine_id: EngineId, factories: Factories, spool: Spool, *, is_overlapped: bool
) -> EngineProcessor | None:
    """The processor of one request; None where it has none, and for a prefill, whose token none may see.

    is_overlapped: whether the engine's overlap scheduler is on. Opens the request's file in the spool, which
    the driver closes when the request has ended. Raises OSError where it cannot be made.
    """
    if not spec.processors or spec.stage is Stage.PREFILL:
        return None
    return EngineProcessor(
        Orders(
            entries=spec.processors,
            factories=factories.chosen(spec.processors),
            spool=spool.open(engine_id, (entry.name for entry in spec.processors)),
            prompt_tokens=len(spec.prompt),
            min_tokens=spec.stop.min_tokens,
            end_id=stop_ids(spec.stop).end,
            most_sequences=spec.sequences,
            is_overlapped=is_overlapped,
            has_grammar=spec.guided is not None,
        )
    )


def unpickled(pickled: bytes) -> Factory:
    """In the engine's process: imports the operator's module, and raises whatever that raises."""
    return cast("Factory", pickle.loads(pickled))  # noqa: S301 - written by this worker, from its own settings


def _pickled(name: str, factory: Factory) -> bytes:
    try:
        pickled = pickle.dumps(factory)
        unpickled(pickled)
    except Exception as exc:
        reason = f"{type(exc).__name__}: {exc}"
        raise NotPicklable(
            f"the logits processor {name!r} has to be found again in the engine's own process, and Python "
            f"cannot pickle its factory ({reason})"
        ) from exc
    return pickled
