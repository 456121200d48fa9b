"""The call that begins a request, and what it means when the library raises at it.

The library may raise the late error of somebody else, has perhaps sent the request all the same, and has
perhaps died: only then anybody else hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from actors.engines.trtllm.life.faults import Fault, fault_of
from actors.engines.trtllm.life.health import known_fault
from actors.engines.trtllm.loading import Loaded
from actors.engines.trtllm.requests.asking import Asking
from protocols.errors import EngineDead
from protocols.spec import GenerationSpec, Stage

# What a request's own data make the library raise, besides its RequestError.
_OF_DATA = (ValueError, TypeError, AssertionError)


class Doubtful(Exception):
    """The library has raised something that says nothing of the request. kind: its type's name."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Calling:
    """Event loop only. on_dead: the engine will not work again. on_doubt: look at its health soon."""

    def __init__(
        self,
        loaded: Loaded,
        asking: Asking,
        on_dead: Callable[[BaseException], None],
        on_doubt: Callable[[], None],
    ) -> None:
        self._llm = loaded.llm
        self._library = loaded.library
        self._asking = asking
        self._on_dead = on_dead
        self._on_doubt = on_doubt

    def begin(self, spec: GenerationSpec, new_processor: Callable[[], object]) -> Any:
        """The library's ``RequestOutput``. Raises EngineDead, Doubtful, or what is wrong with the request.

        One that the library raises at is asked for once more: it may be the late error of another.
        new_processor: for each of the calls one of its own, since the first may be at work all the same.
        """
        before, processor = self._last_client_id(), new_processor()
        try:
            return self._llm.generate_async(**self._asking.keywords(spec, processor))
        except Exception as exc:
            self._refused(exc)
            if self._end_ghost(before) and spec.stage is Stage.DECODE:
                # What was handed over can be fetched once.
                raise self._to_raise(exc) from exc
        processor = new_processor()
        try:
            return self._llm.generate_async(**self._asking.keywords(spec, processor))
        except Exception as exc:
            self._refused(exc)
            self._end_ghost(before)
            raise self._to_raise(exc) from exc

    def death_in(self, exc: BaseException) -> BaseException | None:
        """What ended the engine, if this says so or the library knows."""
        return exc if fault_of(exc, self._library) is Fault.ENGINE else known_fault(self._llm)

    def _refused(self, exc: Exception) -> None:
        """Raises EngineDead where that is why."""
        cause = self.death_in(exc)
        if cause is not None:
            self._on_dead(cause)
            raise EngineDead("TensorRT-LLM takes no more requests") from cause
        self._on_doubt()

    def _to_raise(self, exc: Exception) -> Exception:
        """The request's own data may be why, or else the library may have died unnoticed so far."""
        is_of_request = isinstance(exc, (self._library.RequestError, *_OF_DATA))
        return exc if is_of_request else Doubtful(type(exc).__name__)

    def _last_client_id(self) -> object:
        """The library's own count of what it was asked for."""
        return getattr(self._llm._executor, "_last_client_id", None)

    def _end_ghost(self, before: object) -> bool:
        """Whether the library had sent the request when it raised; if so it is ended: nobody will read it."""
        ghost = self._last_client_id()
        if ghost == before:
            return False
        with suppress(Exception):
            self._llm._executor.abort_request(ghost)
        return True
