"""The console script, which stops at one moment of its life and says so. Everything else is the real thing.

``python -m tests.doubles.moment_worker <options of the worker>``, with the environment variables MOMENT,
a name of `MOMENTS`, and MOMENT_GATE, the path of a FIFO. At the moment the process prints ``at MOMENT``
and waits, the first time it gets there, until somebody has opened and closed the gate for writing.

Nothing of the worker is imported here: an engine's own process imports this module again.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.doubles.trtllm_worker import seem_to_have_trtllm

if TYPE_CHECKING:
    from protocols.spec import GenerationSpec

# The engines of ``--engine``, by the names that it has.
_ENGINES = {
    "synthetic": "actors.engines.synthetic:SyntheticEngine",
    "trtllm": "actors.engines.trtllm.engine:TrtllmEngine",
}


def _engine() -> str:
    """Where the engine of this worker is."""
    return _ENGINES[sys.argv[sys.argv.index("--engine") + 1]]


def _found(place: str) -> Any:
    """A module, or with a name after a colon what it has of that name."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


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


def _before(place: str, name: str) -> Callable[[Halt], None]:
    """Before this function of the main thread."""

    def arm(halt: Halt) -> None:
        owner = _found(place)
        original = getattr(owner, name)

        def first_halt(*args: Any, **kwargs: Any) -> Any:
            halt.here()
            return original(*args, **kwargs)

        setattr(owner, name, first_halt)

    return arm


def _before_async(place: Callable[[], str], name: str) -> Callable[[Halt], None]:
    """Before this method of the event loop."""

    def arm(halt: Halt) -> None:
        owner = _found(place())
        original = getattr(owner, name)

        async def first_halt(*args: Any, **kwargs: Any) -> Any:
            await halt.in_loop()
            return await original(*args, **kwargs)

        setattr(owner, name, first_halt)

    return arm


def _facade() -> str:
    return "service.engine:ActorEngine"


def _before_last_chunk(halt: Halt) -> None:
    """The engine has ended a request; the framework has yet to get its last chunk."""
    owner = _found(_facade())
    original = owner.generate

    async def generate(self: Any, request: Any, context: Any) -> AsyncGenerator[Any, None]:
        async for chunk in original(self, request=request, context=context):
            if chunk.get("finish_reason") is not None:
                await halt.in_loop()
            yield chunk

    owner.generate = generate


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
    """While a grammar is being compiled: the engine takes any regex, and hears of none."""
    import msgspec

    from protocols.spec import GuidedKind

    owner = _found(_engine())
    init, submit = owner.__init__, owner.submit

    def make(self: Any, *what: Any) -> None:
        init(self, *what)
        self.capabilities = msgspec.structs.replace(self.capabilities, guided=frozenset({GuidedKind.REGEX}))

    def submit_unguided(self: Any, engine_id: Any, spec: GenerationSpec) -> None:
        submit(self, engine_id, msgspec.structs.replace(spec, guided=None))

    preparer = _SlowPreparer(halt)
    owner.__init__, owner.submit = make, submit_unguided
    # An engine that sets its own is not heard.
    owner.preparer = property(lambda _: preparer, lambda _, __: None)


MOMENTS: dict[str, Callable[[Halt], None]] = {
    "model": _before("service.serving", "resolve_model"),
    "load": _before_async(_engine, "start"),
    "registration": _before_async(_facade, "on_endpoint_ready"),
    "serving": _before_async(_facade, "health_check_payload"),
    "grammar": _in_grammar,
    "last_token": _before_last_chunk,
    "cleanup": _before_async(_engine, "stop"),
    # The framework has returned and the code is decided; nothing ignores signals yet.
    "returned": _before("service.stopping:StopSignals", "ignore_from_now"),
}

if __name__ == "__main__":
    seem_to_have_trtllm(sys.argv)
    MOMENTS[os.environ["MOMENT"]](Halt(os.environ["MOMENT"], Path(os.environ["MOMENT_GATE"])))
    from service.main import entry_point

    entry_point()
