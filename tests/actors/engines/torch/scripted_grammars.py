"""Grammars that do what a test tells them at a certain token, and write down what they were given."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from protocols.spec import Guided, GuidedKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    # What a grammar does at one token: it says whether it is complete.
    Acts = Mapping[int, Callable[[], bool]]


class ScriptedGrammar:
    """Allows everything. acts: by choice, what it does when it notes the token with this number, from 1."""

    def __init__(self, *acts: Acts) -> None:
        self.states: list[ScriptedState] = []
        self._acts = acts

    def new_state(self) -> ScriptedState:
        choice = len(self.states)
        self.states.append(ScriptedState(self._acts[choice] if choice < len(self._acts) else {}))
        return self.states[-1]

    @property
    def guided(self) -> Guided:
        return Guided(kind=GuidedKind.REGEX, constraint="scripted", grammar=self)

    @property
    def noted(self) -> list[list[int]]:
        """The tokens of each choice."""
        return [state.noted for state in self.states]


class ScriptedState:
    """Of one choice. noted: tokens, in order; threads: where that was."""

    def __init__(self, acts: Acts) -> None:
        self.noted: list[int] = []
        self.threads: set[str] = set()
        self.masks = 0
        self._acts = acts

    def fill_mask(self) -> None:
        self.masks += 1

    def apply_mask(self, row: torch.Tensor) -> None:
        """Forbids nothing."""

    def accept(self, token: int) -> bool:
        self.noted.append(token)
        self.threads.add(threading.current_thread().name)
        act = self._acts.get(len(self.noted))
        return act is not None and act()


class Word:
    """What a grammar waits for. ``says``: what it answers then; an error is raised."""

    def __init__(self, says: bool | BaseException) -> None:
        self._says = says
        self._event = threading.Event()

    def __call__(self) -> bool:
        self._event.wait()
        if isinstance(self._says, BaseException):
            raise self._says
        return self._says

    def give(self) -> None:
        self._event.set()
