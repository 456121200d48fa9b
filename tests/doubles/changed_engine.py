"""The console script with another engine than it would build; all else is the real thing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import service.main
from tests.doubles.trtllm_worker import seem_to_have_trtllm

if TYPE_CHECKING:
    from protocols.engine import Engine
    from service.stopping import StopSignals

# From the engine that the worker would have to the one that it gets.
Change = Callable[["Engine"], "Engine"]


def serve_changed(prepare: Callable[[], Change]) -> None:
    """Signals first, as in the console script. prepare: called when the worker begins to serve."""
    dispatch = service.main._dispatch

    def dispatch_changed(command: str, rest: list[str], signals: StopSignals) -> int:
        from service import drivers

        seem_to_have_trtllm(sys.argv)
        change, build_engine = prepare(), drivers.build_engine

        def build_changed(*what: Any) -> Engine:
            return change(build_engine(*what))

        setattr(drivers, "build_engine", build_changed)  # noqa: B010 - its parameters are not ours to repeat
        return dispatch(command, rest, signals)

    service.main._dispatch = dispatch_changed
    service.main.entry_point()
