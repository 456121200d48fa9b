"""From logits to tokens: what is told, what is changed, and what is chosen, in this order.

1. raw logits are kept for those who asked for logprobs
2. penalties  3. logits processors  4. the grammar's mask  5. stop ids before min_tokens
6. greedy, or a draw

Processors and grammars run beside the engine's thread (`steering`). A row that is not back after a turn
is late: the step goes on without it, and its token is chosen in a later step from the logits it has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from actors.engines.foreign.steering_failed import SteeringFailed
from actors.engines.torch.lanes import Turn
from actors.engines.torch.logprobs import positions_of
from actors.engines.torch.sampler import Sampler
from actors.engines.torch.sequence import Sequence
from actors.engines.torch.steering import Steering
from protocols.steps import Position

_NOT_FINITE = "the model gave logits that are not finite"
_NOTHING_LEFT = "the constraints of the request leave no token to choose"


class Choice(NamedTuple):
    """What comes next in a sequence: a token, or the reason why there is none. position: if asked for."""

    sequence: Sequence
    token: int | None
    position: Position | None = None
    error: str | None = None


class _Late(NamedTuple):
    """A sequence whose row is still being changed.

    raw: the row as the model gave it, if that is wanted. is_sound: whether it was finite then.
    """

    sequence: Sequence
    steering: Steering
    raw: Tensor | None
    is_sound: bool


class _Begun(NamedTuple):
    """A row of the step's logits that is being changed; view: ``[vocabulary]``, unchanged so far."""

    row: int
    view: Tensor
    sequence: Sequence
    steering: Steering


class Chooser:
    """Only the engine's thread calls it. turn: what the step may still wait."""

    def __init__(self, sampler: Sampler) -> None:
        self.turn = Turn()
        self._sampler = sampler
        self._late: list[_Late] = []

    @property
    def has_late(self) -> bool:
        """Whether something is still running for a token of an earlier step."""
        return bool(self._late)

    @torch.inference_mode()
    def choose(self, logits: Tensor, sequences: list[Sequence]) -> list[Choice]:
        """The next token of each row of ``[rows, vocabulary]`` that is not late. Changes logits."""
        raw = _raw_rows(logits, sequences)
        for row, sequence in enumerate(sequences):
            if sequence.penalties is not None:
                sequence.penalties.apply(logits[row])
        absent = self._steer(logits, sequences, raw)
        if not absent:
            return self._sample(logits, sequences, raw)
        failed = [choice for choice in absent.values() if choice is not None]
        here = [row for row in range(len(sequences)) if row not in absent]
        if not here:
            return failed
        raws = [raw[row] for row in here]
        return failed + self._sample(logits[here], [sequences[row] for row in here], raws)

    @torch.inference_mode()
    def choose_late(self) -> list[Choice]:
        """The tokens of those that were late and are ready now."""
        choices: list[Choice] = []
        rows: list[Tensor] = []
        ready: list[_Late] = []
        waiting, self._late = self._late, []
        for late in waiting:
            found = self._look_at(late)
            if isinstance(found, Choice):
                choices.append(found)
            elif found is not None:
                rows.append(found)
                ready.append(late)
        if ready:
            choices += self._sample(
                torch.stack(rows), [late.sequence for late in ready], [late.raw for late in ready]
            )
        for choice in choices:
            choice.sequence.is_late = False
        return choices

    def _look_at(self, late: _Late) -> Tensor | Choice | None:
        """Its row when it is ready, or its failure. What is neither stays late, unless it has ended."""
        sequence, steering = late.sequence, late.steering
        if sequence.is_ended:
            return None
        if steering.is_hopeless:
            return Choice(sequence, None, error=steering.give_up())
        if steering.is_running:
            steering.look()
            self._late.append(late)
            return None
        try:
            return steering.finish()
        except SteeringFailed as exc:
            return _failed(sequence, exc, is_sound=late.is_sound)

    def _steer(
        self, logits: Tensor, sequences: list[Sequence], raw: list[Tensor | None]
    ) -> dict[int, Choice | None]:
        """Let processors and grammars change their rows. Which cannot be sampled now; None: late."""
        absent: dict[int, Choice | None] = {}
        begun: list[_Begun] = []
        for row, sequence in enumerate(sequences):
            if sequence.steering is not None:
                one = _Begun(row, logits[row], sequence, sequence.steering)
                one.steering.begin(one.view, sequence.tokens)
                begun.append(one)
        with self.turn.waiting() as until_s:
            # Jobs are done in order: once the last is back, the others are.
            for one in reversed(begun):
                one.steering.wait(until_s)
        for one in begun:
            try:
                if not self._take_back(one, raw[one.row]):
                    absent[one.row] = None
            except SteeringFailed as exc:
                absent[one.row] = _failed(one.sequence, exc, is_sound=_is_sound(one.view))
        return absent

    def _take_back(self, one: _Begun, raw: Tensor | None) -> bool:
        """Put the changed row into its place. False when it is late. Raises SteeringFailed."""
        if one.steering.is_running:
            one.steering.keep()
            one.sequence.is_late = True
            self._late.append(_Late(one.sequence, one.steering, raw, _is_sound(one.view)))
            return False
        changed = one.steering.finish()
        if changed is not one.view:
            one.view.copy_(changed)
        return True

    def _sample(self, logits: Tensor, sequences: list[Sequence], raw: list[Tensor | None]) -> list[Choice]:
        tokens = self._sampler.choose(logits, sequences)
        positions = _positions(sequences, tokens, raw)
        return [
            Choice(sequence, token, position, _reason(sequence) if token is None else None)
            for sequence, token, position in zip(sequences, tokens, positions, strict=True)
        ]


def _failed(sequence: Sequence, exc: SteeringFailed, *, is_sound: bool) -> Choice:
    """Whatever a processor did with a row that was broken before, it is not to blame for that."""
    return Choice(sequence, None, error=str(exc) if is_sound else _NOT_FINITE)


def _is_sound(row: Tensor) -> bool:
    """Whether the model gave numbers. NaN and +inf win, so the largest one tells."""
    return math.isfinite(float(row.max()))


def _reason(sequence: Sequence) -> str:
    return _NOT_FINITE if sequence.steering is None else _NOTHING_LEFT


def _raw_rows(logits: Tensor, sequences: list[Sequence]) -> list[Tensor | None]:
    """Copies of the rows whose logprobs are wanted, before anything is changed."""
    return [
        logits[row].clone() if sequence.spec.output.logprobs is not None else None
        for row, sequence in enumerate(sequences)
    ]


def _positions(
    sequences: list[Sequence], tokens: list[int | None], raw: list[Tensor | None]
) -> list[Position | None]:
    """What is told about each choice, for those who asked."""
    told = [
        (place, row, token, sequence.spec.output.logprobs or 0)
        for place, (sequence, row, token) in enumerate(zip(sequences, raw, tokens, strict=True))
        if row is not None and token is not None
    ]
    positions: list[Position | None] = [None] * len(sequences)
    if told:
        rows = [row for _, row, _, _ in told]
        found = positions_of(rows, [token for _, _, token, _ in told], [count for _, _, _, count in told])
        for (place, _, _, _), position in zip(told, found, strict=True):
            positions[place] = position
    return positions
