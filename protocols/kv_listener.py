"""Who is told what lies in the KV cache, without the graph knowing who that is."""

from __future__ import annotations

from typing import Protocol

from protocols.steps import EngineStep


class KvListener(Protocol):
    """Called from the event loop."""

    def step_made(self, step: EngineStep) -> None:
        """After every step of the engine, before its tokens are given out: events in order, and counts."""
        ...


class NullKvListener:
    """Nobody routes by cache."""

    def step_made(self, step: EngineStep) -> None: ...
