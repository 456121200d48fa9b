"""Logits processors of an engine in other processes: what goes there with a request, and what comes back."""

from __future__ import annotations

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.processors.factories import EngineProcessor, Factories, NotPicklable, attach
from actors.engines.trtllm.processors.spool import Spool, SpoolReport
from protocols.errors import EngineStartError
from protocols.spec import GenerationSpec
from protocols.steps import EngineId

_NOTHING = SpoolReport()


class Steering:
    """Event loop only. An engine without processors has no spool, and pays nothing."""

    def __init__(self, config: TrtllmConfig) -> None:
        """Raises EngineStartError for processors that cannot travel, or where no spool can be made."""
        try:
            self._factories = Factories.of(config.processors)
        except NotPicklable as exc:
            raise EngineStartError(str(exc), "Make them importable by name.") from exc
        self._spool = Spool.make(on_bound=config.on_bound) if config.processors else None
        self._is_overlapped = not config.arguments.get("disable_overlap_scheduler", False)

    def attach(self, spec: GenerationSpec, engine_id: EngineId) -> EngineProcessor | None:
        """For ``SamplingParams``, anew at every call: of the one before nothing is heard any more.

        Raises OSError where its file cannot be made.
        """
        if self._spool is None:
            return None
        self._spool.close(engine_id)
        return attach(spec, engine_id, self._factories, self._spool, is_overlapped=self._is_overlapped)

    def read(self, engine_id: EngineId) -> SpoolReport:
        """What is new of a request's processors."""
        return _NOTHING if self._spool is None else self._spool.read(engine_id)

    def close(self, engine_id: EngineId) -> None:
        """The request has ended. Idempotent."""
        if self._spool is not None:
            self._spool.close(engine_id)

    def remove(self) -> None:
        """The engine has ended. Idempotent; never raises."""
        if self._spool is not None:
            self._spool.remove()
