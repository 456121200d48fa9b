"""The console script with an engine that breaks its word: ``python -m tests.doubles.hostile_worker OPTIONS``.

Everything but the engine is the real thing, its options too; the environment variable HOSTILE_ENGINE
(`tests.doubles.hostile_engine.HostileSettings` as JSON) says what the engine does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from tests.doubles.changed_engine import serve_changed

if TYPE_CHECKING:
    from actors.engines.synthetic import SyntheticEngine
    from protocols.engine import Engine
    from tests.doubles.changed_engine import Change


def hostile() -> Change:
    """Put the hostile engine around the one that the worker builds."""
    import msgspec

    from tests.doubles.hostile_engine import HostileEngine, HostileSettings
    from tests.doubles.hostile_process import OwnProcess
    from tests.doubles.process_engine import ProcessEngine

    settings = msgspec.json.decode(os.environ.get("HOSTILE_ENGINE", "{}"), type=HostileSettings)
    arm = _breaking(settings.breaks) if settings.breaks else _nothing

    def spoil(paced: Engine) -> Engine:
        if paced.name == "trtllm":
            return HostileEngine(paced, settings, arm, OwnProcess())
        if settings.in_process:
            return HostileEngine(paced, settings, arm, None)
        child = ProcessEngine(cast("SyntheticEngine", paced)._config)
        return HostileEngine(child, settings, arm, child)

    return spoil


def _breaking(place: str) -> Callable[[], None]:
    """Wrap a method of an actor; what is returned lets its next call raise, and every one after it."""
    module, _, path = place.partition(":")
    owner_name, _, name = path.partition(".")
    owner = getattr(import_module(module), owner_name)
    original = getattr(owner, name)
    is_armed = False

    def breaks(*args: Any, **kwargs: Any) -> Any:
        if is_armed:
            raise KeyError("a bug in an actor")
        return original(*args, **kwargs)

    def arm() -> None:
        nonlocal is_armed
        is_armed = True

    setattr(owner, name, breaks)
    return arm


def _nothing() -> None:
    """There is no actor to break."""


if __name__ == "__main__":
    serve_changed(hostile)
