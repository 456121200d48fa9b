"""The console script, which stops at one moment of its life and says so. Everything else is the real thing.

``python -m tests.doubles.moment_worker <options of the worker>``, with the environment variables MOMENT,
a name of `MOMENTS`, and MOMENT_GATE, the path of a FIFO. At the moment the process prints ``at MOMENT``
and waits, the first time it gets there, until somebody has opened and closed the gate for writing.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgspec

from actors.engines.synthetic import SyntheticConfig, SyntheticEngine
from protocols.spec import GenerationSpec, GuidedKind
from service import serving
from service.engine import ActorEngine
from service.main import entry_point
from service.stopping import StopSignals


class Halt:
    """Says that the moment has come and waits at the gate; only the first time."""

    def __init__(self, moment: str, gate: Path) -> None:
        self._moment = moment
        self._gate = gate
        self._has_been = False

    def here(self) -> None:
        """In the thread that calls. A signal handler that raises ends the wait."""
        if not self._has_been:
            self._has_been = True
            print(f"at {self._moment}", flush=True)
            self._gate.read_bytes()

    async def in_loop(self) -> None:
        """In the event loop, which goes on meanwhile. The thread keeps nobody from ending."""
        loop, passed = asyncio.get_running_loop(), asyncio.Event()

        def wait() -> None:
            self.here()
            loop.call_soon_threadsafe(passed.set)

        threading.Thread(target=wait, daemon=True).start()
        await passed.wait()


def _before(owner: Any, name: str) -> Callable[[Halt], None]:
    """Before this function of the main thread."""

    def arm(halt: Halt) -> None:
        original = getattr(owner, name)

        def first_halt(*args: Any, **kwargs: Any) -> Any:
            halt.here()
            return original(*args, **kwargs)

        setattr(owner, name, first_halt)

    return arm


def _before_async(owner: Any, name: str) -> Callable[[Halt], None]:
    """Before this method of the event loop."""

    def arm(halt: Halt) -> None:
        original = getattr(owner, name)

        async def first_halt(*args: Any, **kwargs: Any) -> Any:
            await halt.in_loop()
            return await original(*args, **kwargs)

        setattr(owner, name, first_halt)

    return arm


def _before_last_chunk(halt: Halt) -> None:
    """The engine has ended a request; the framework has yet to get its last chunk."""
    original = ActorEngine.generate

    async def generate(self: ActorEngine, request: Any, context: Any) -> AsyncGenerator[Any, None]:
        async for chunk in original(self, request=request, context=context):
            if chunk.get("finish_reason") is not None:
                await halt.in_loop()
            yield chunk

    setattr(ActorEngine, "generate", generate)  # noqa: B010 - the type of a method is not ours to change


class _SlowPreparer:
    """Has no grammar at hand, and stands at the gate with the first that is asked for."""

    def __init__(self, halt: Halt) -> None:
        self._halt = halt

    def find(self, _spec: GenerationSpec) -> GenerationSpec | None:
        return None

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        await self._halt.in_loop()
        return spec.with_grammar("anything")


def _in_grammar(halt: Halt) -> None:
    """While a grammar is being compiled: the engine takes any regex, and obeys none."""
    original = SyntheticEngine.__init__

    def make(self: SyntheticEngine, config: SyntheticConfig) -> None:
        original(self, config)
        self.capabilities = msgspec.structs.replace(self.capabilities, guided=frozenset({GuidedKind.REGEX}))
        setattr(self, "preparer", _SlowPreparer(halt))  # noqa: B010 - the engine has none of its own

    setattr(SyntheticEngine, "__init__", make)  # noqa: B010 - the type of a method is not ours to change


MOMENTS: dict[str, Callable[[Halt], None]] = {
    "model": _before(serving, "resolve_model"),
    "load": _before_async(SyntheticEngine, "start"),
    "registration": _before_async(ActorEngine, "on_endpoint_ready"),
    "serving": _before_async(ActorEngine, "health_check_payload"),
    "grammar": _in_grammar,
    "last_token": _before_last_chunk,
    "cleanup": _before_async(SyntheticEngine, "stop"),
    # The framework has returned and the code is decided; nothing ignores signals yet.
    "returned": _before(StopSignals, "ignore_from_now"),
}

if __name__ == "__main__":
    MOMENTS[os.environ["MOMENT"]](Halt(os.environ["MOMENT"], Path(os.environ["MOMENT_GATE"])))
    entry_point()
