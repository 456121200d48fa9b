"""Grammars follow the tokens that were chosen, beside the engine's thread.

A step waits for all of them together. A sequence whose grammar is not back by then is late: its token is
told, and it is computed again when its grammar has noted the token. Should that have completed it, the
sequence ends with the token it has told last.
"""

from __future__ import annotations

from actors.engines.foreign.steering_failed import SteeringFailed
from actors.engines.torch.lanes import Turn
from actors.engines.torch.sequence import Sequence
from actors.engines.torch.steering import Steering


class Following:
    """Only the engine's thread calls it. ``turn``: what a step may still wait."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._begun: list[Sequence] = []
        self._late: list[Sequence] = []
        # Whoever was the last to want a mask: all are on the same lane.
        self._fetching: Steering | None = None

    @property
    def has_late(self) -> bool:
        """Whether a grammar is still at work on a token that was told."""
        return bool(self._late)

    def begin(self, sequence: Sequence) -> None:
        """Its newest token was chosen, and is not known to be its last."""
        if sequence.steering is not None and sequence.steering.follow(sequence.tokens[-1]):
            self._begun.append(sequence)

    def wait(self) -> None:
        """Until all that have begun are done or late."""
        begun, self._begun = self._begun, []
        with self._turn.waiting() as until_s:
            # Jobs are done in order: once the last is back, the others are.
            for sequence in reversed(begun):
                if sequence.steering is not None:
                    sequence.steering.wait(until_s)

    def is_complete(self, sequence: Sequence) -> bool:
        """Whether its grammar ends it with its newest token. False as well while that is not known.

        Otherwise its next mask waits for `begin_masks`, or the sequence is late. Raises SteeringFailed.
        """
        steering = sequence.steering
        if steering is None:
            return False
        if steering.is_hopeless:
            raise SteeringFailed(steering.give_up())
        if steering.is_running:
            steering.look()
            steering.count_late()
            sequence.is_late = True
            self._late.append(sequence)
            return False
        if steering.followed():
            return True
        steering.prefetch()
        self._fetching = steering
        return False

    def begin_masks(self) -> None:
        """Those that go on have all been asked: not before, or both threads would want the interpreter."""
        if self._fetching is not None:
            self._fetching.begin_mask()
            self._fetching = None

    def take_late(self) -> list[Sequence]:
        """Those that were late and have not ended meanwhile, to be asked again."""
        late, self._late = self._late, []
        for sequence in late:
            sequence.is_late = False
        return [sequence for sequence in late if not sequence.is_ended]
