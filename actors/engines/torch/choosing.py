"""From logits to tokens: what is told, what is changed, and what is chosen, in this order.

1. raw logits are kept for those who asked for logprobs
2. penalties  3. logits processors  4. the grammar's mask  5. stop ids before min_tokens
6. greedy, or a draw

Processors and grammars run beside the engine's thread (`steering`). A row that is not back after a turn
is late: the step goes on without it, and its token is chosen in a later step from the logits it has.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import torch
from torch import Tensor

from actors.engines.torch.lanes import TURN_S
from actors.engines.torch.logprobs import positions_of
from actors.engines.torch.sampler import Sampler
from actors.engines.torch.sequence import Sequence
from actors.engines.torch.steering import Steering
from actors.engines.torch.steering_failed import SteeringFailed
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
    """A sequence whose row is still being changed. raw: the row as the model gave it, if that is wanted."""

    sequence: Sequence
    steering: Steering
    raw: Tensor | None


class _Begun(NamedTuple):
    """A row ``[vocabulary]`` of the step's logits that is being changed; late: in case it will be."""

    row: int
    view: Tensor
    late: _Late


class Chooser:
    """Only the engine's thread calls it."""

    def __init__(self, sampler: Sampler) -> None:
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
        """Its row when it is ready, or its failure. What is neither stays late.

        That holds for ended requests, too: what runs for nobody must not run for ever.
        """
        sequence, steering = late.sequence, late.steering
        if steering.is_hopeless:
            return Choice(sequence, None, error=steering.give_up())
        if steering.is_running:
            steering.look()
            self._late.append(late)
            return None
        try:
            return None if sequence.is_ended else steering.finish()
        except SteeringFailed as exc:
            return Choice(sequence, None, error=str(exc))

    def _steer(
        self, logits: Tensor, sequences: list[Sequence], raw: list[Tensor | None]
    ) -> dict[int, Choice | None]:
        """Let processors and grammars change their rows. Which cannot be sampled now; None: late."""
        absent: dict[int, Choice | None] = {}
        begun: list[_Begun] = []
        for row, sequence in enumerate(sequences):
            if sequence.steering is not None:
                one = _Begun(row, logits[row], _Late(sequence, sequence.steering, raw[row]))
                sequence.steering.begin(one.view, sequence.tokens)
                begun.append(one)
        until_s = time.monotonic() + TURN_S
        # Jobs are done in order: once the last is back, the others are.
        for one in reversed(begun):
            one.late.steering.wait(until_s)
        for one in begun:
            try:
                if not self._take_back(one):
                    absent[one.row] = None
            except SteeringFailed as exc:
                absent[one.row] = _failed(one, exc)
        return absent

    def _take_back(self, one: _Begun) -> bool:
        """Put the changed row into its place. False when it is late. Raises SteeringFailed."""
        steering = one.late.steering
        if steering.is_running:
            steering.keep()
            one.late.sequence.is_late = True
            self._late.append(one.late)
            return False
        changed = steering.finish()
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


def _failed(one: _Begun, exc: SteeringFailed) -> Choice:
    """Whatever a processor did with a row that was broken before, it is not to blame for that."""
    is_fine = math.isfinite(float(one.view.max()))
    return Choice(one.late.sequence, None, error=str(exc) if is_fine else _NOT_FINITE)


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
