"""The embedded engine as the graph sees it: a driver whose engine is a thread of this process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from actors.engines.bridge import StepBridge
from actors.engines.torch.config import TorchConfig
from actors.engines.torch.guidance import why_unguided
from actors.engines.torch.inbox import Abort, CommandInbox, Pause, Resume, Submit
from actors.engines.torch.preparing import TorchPreparer
from actors.engines.torch.pulse import Pulse
from protocols.engine import EngineCapabilities, EngineInfo, SpecPreparer
from protocols.errors import EngineStartError, InternalError, ServiceError, StartStopped
from protocols.spec import GenerationSpec, GuidedKind, Sampling
from protocols.steps import EngineId, EngineStep

if TYPE_CHECKING:
    from actors.engines.torch.step_loop import StepLoop

Progress = Callable[[str, float], None]
"""Called in the engine's thread with the stage of the start and the fraction done, 0 to 1."""

# OpenAI's limits for choices of a request and for alternatives of a token.
MOST_CHOICES = 128
MOST_LOGPROBS = 20

# A step or a stage of loading that is longer than this is left to die with the process.
_STOP_S = 5.0

_log = logging.getLogger(__name__)


class TorchEngine:
    """Implements `protocols.engine.Engine`.

    The thread is a daemon: it owns the model and everything it computes with. Commands reach it
    through the inbox, steps leave it through the bridge; besides them only its pulse is shared.
    """

    def __init__(self, config: TorchConfig, progress: Progress | None = None) -> None:
        self._config = config
        self._progress = progress
        self._inbox = CommandInbox()
        self._bridge = StepBridge(on_bound=config.on_bound)
        self._pulse = Pulse()
        self._thread: threading.Thread | None = None
        unguided = why_unguided()
        self.capabilities = EngineCapabilities(
            can_pause=True,
            sampling=frozenset(Sampling.__struct_fields__),
            max_n=min(MOST_CHOICES, config.max_num_seqs),
            max_logprobs=MOST_LOGPROBS,
            no_prompt_logprobs="",
            guided=frozenset() if unguided else frozenset(GuidedKind),
            no_guided=unguided,
            guided_backend="" if unguided else "llguidance",
            processors=frozenset(config.processors),
        )
        self._preparer = TorchPreparer(config)
        # Its memory is the process's, and no other worker can read its cache.
        self.maintenance = None
        self.pending_transfers = 0

    @property
    def name(self) -> str:
        return "torch"

    @property
    def preparer(self) -> SpecPreparer:
        return self._preparer

    @property
    def progress(self) -> int:
        return self._pulse.beats

    async def start(self) -> EngineInfo:
        """Load in the engine's thread. Once only."""
        if self._thread is not None:
            raise InternalError("start() was already called")
        ready: Future[EngineInfo] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="torch-engine", daemon=True)
        self._thread.start()
        info = await asyncio.wrap_future(ready)
        self._preparer.open(info.vocab_size)
        return info

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        self._inbox.put(Submit(engine_id, spec))

    def abort(self, engine_id: EngineId) -> None:
        self._inbox.put(Abort(engine_id))

    def pause(self, engine_id: EngineId) -> None:
        self._inbox.put(Pause(engine_id))

    def resume(self, engine_id: EngineId) -> None:
        self._inbox.put(Resume(engine_id))

    async def next_step(self) -> EngineStep:
        return await self._bridge.next_step()

    async def stop(self) -> None:
        """Ends the thread, within 5 s or with a warning; later `next_step` calls raise EngineDead."""
        self._inbox.stop()
        self._bridge.close()
        self._preparer.close()
        if self._thread is None:
            return
        await asyncio.to_thread(self._thread.join, _STOP_S)
        if self._thread.is_alive():
            _log.warning("the engine's thread did not end within %g s; it ends with the process", _STOP_S)

    def _run(self, ready: Future[EngineInfo]) -> None:
        """The thread."""
        ready.set_running_or_notify_cancel()
        try:
            info, steps = self._load()
        except ServiceError as exc:
            ready.set_exception(exc)
            return
        except BaseException as exc:
            # Also a panic of a library in another language.
            ready.set_exception(_start_error(exc))
            return
        ready.set_result(info)
        try:
            steps.run()
        except BaseException as exc:
            # Nobody else would notice the thread's end.
            self._bridge.fail(exc)

    def _load(self) -> tuple[EngineInfo, StepLoop]:
        """torch is imported here: that takes seconds, and the loop should not wait for it."""
        self._checkpoint("importing", 0.0)
        from actors.engines.torch.loading import load  # noqa: PLC0415 - see above
        from actors.engines.torch.step_loop import StepLoop  # noqa: PLC0415

        loaded = load(self._config, self._checkpoint)
        self._pulse = loaded.runner.pulse
        return loaded.info, StepLoop(self._config, loaded, self._inbox, self._bridge)

    def _checkpoint(self, stage: str, fraction: float) -> None:
        if self._inbox.is_stopping:
            raise StartStopped("the engine was stopped while it was starting")
        if self._progress is not None:
            self._progress(stage, fraction)


def _start_error(exc: BaseException) -> EngineStartError:
    hint = "Install torch and transformers." if isinstance(exc, ImportError) else ""
    error = EngineStartError(f"the model could not be loaded: {type(exc).__name__}: {exc}", hint)
    error.__cause__ = exc
    return error
