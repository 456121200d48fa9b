"""Commands on their way from the event loop to the engine's thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from protocols.spec import GenerationSpec
from protocols.steps import EngineId


@dataclass(frozen=True, slots=True)
class Submit:
    """Begin a request."""

    engine_id: EngineId
    spec: GenerationSpec


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request early; unknown ids are ignored."""

    engine_id: EngineId


@dataclass(frozen=True, slots=True)
class Pause:
    """Hold a request back; unknown ids are ignored."""

    engine_id: EngineId


@dataclass(frozen=True, slots=True)
class Resume:
    """Let a paused request go on; unknown ids are ignored."""

    engine_id: EngineId


Command = Submit | Abort | Pause | Resume


class CommandInbox:
    """A thread-safe list with a condition to sleep on.

    Bounded by its writers: at most one submit, one abort and one change of flow are under way for
    each of the requests the graph has admitted.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commands: list[Command] = []
        self._is_woken = False
        self._is_stopping = False

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was asked for. Any thread."""
        return self._is_stopping

    def put(self, command: Command) -> None:
        """Any thread: add one command and wake the engine's thread."""
        with self._changed:
            self._commands.append(command)
            self._changed.notify()

    def wake(self) -> None:
        """Any thread: there is something to do besides commands."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def stop(self) -> None:
        """Any thread: the engine's thread shall end. Final."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def take(self, *, is_waiting: bool, timeout_s: float | None = None) -> list[Command]:
        """Engine thread: everything that waits, in order; with ``is_waiting`` sleep until something is to do.

        timeout_s: sleep no longer than this; None means for ever.
        """
        with self._changed:
            if is_waiting:
                self._changed.wait_for(self._is_anything_to_do, timeout_s)
            self._is_woken = False
            commands, self._commands = self._commands, []
            return commands

    def _is_anything_to_do(self) -> bool:
        return bool(self._commands) or self._is_woken or self._is_stopping
