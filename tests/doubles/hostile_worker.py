"""The console script with an engine that breaks its word: ``python -m tests.doubles.hostile_worker OPTIONS``.

Everything but the engine is the real thing, its options too; the environment variable HOSTILE_ENGINE
(`tests.doubles.hostile_engine.HostileSettings` as JSON) says what the engine does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import service.main

if TYPE_CHECKING:
    from actors.engines.synthetic import SyntheticEngine
    from protocols.engine import Engine
    from service.stopping import StopSignals


def _make_hostile() -> None:
    """Put the hostile engine where the worker builds its engine."""
    import msgspec

    from service import assembly
    from tests.doubles.hostile_engine import HostileEngine, HostileSettings
    from tests.doubles.process_engine import ProcessEngine

    settings = msgspec.json.decode(os.environ.get("HOSTILE_ENGINE", "{}"), type=HostileSettings)
    build_paced = assembly.build_engine
    arm = _breaking(settings.breaks) if settings.breaks else _nothing

    def build_hostile(*what: Any) -> Engine:
        paced = build_paced(*what)
        if not settings.in_process:
            paced = ProcessEngine(cast("SyntheticEngine", paced)._config)
        return HostileEngine(paced, settings, arm)

    setattr(assembly, "build_engine", build_hostile)  # noqa: B010 - its parameters are not ours to repeat


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


def main() -> None:
    """Signals first, as in the console script; the hostile parts are built when it begins to serve."""
    dispatch = service.main._dispatch

    def dispatch_hostile(command: str, rest: list[str], signals: StopSignals) -> int:
        _make_hostile()
        return dispatch(command, rest, signals)

    service.main._dispatch = dispatch_hostile
    service.main.entry_point()


if __name__ == "__main__":
    main()
