"""From logits to tokens: what is told, what is changed, and what is chosen, in this order.

1. raw logits are kept for those who asked for logprobs
2. penalties  3. logits processors  4. the grammar's mask  5. stop ids before min_tokens
6. greedy, or a draw

Processors and grammars run beside the engine's thread (`steering`). A row whose are not back in time is
late: the step goes on without it, and its token is chosen in a later step from the logits it has.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

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
    """A sequence whose row is still being changed, and the row as the model gave it if somebody wants that."""

    sequence: Sequence
    raw: Tensor | None


class Chooser:
    """Only the engine's thread calls it."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._late: list[_Late] = []

    @property
    def has_late(self) -> bool:
        """Whether somebody's token is still to be chosen from logits of an earlier step."""
        return bool(self._late)

    def choose(self, logits: Tensor, sequences: list[Sequence]) -> list[Choice]:
        """The next token of each row of ``[rows, vocabulary]`` that is not late. Changes logits."""
        raw = _raw_rows(logits, sequences)
        for row, sequence in enumerate(sequences):
            if sequence.penalties is not None:
                sequence.penalties.apply(logits[row])
        failed, absent = self._steer(logits, sequences, raw)
        if not absent:
            return self._sample(logits, sequences, raw)
        here = [row for row in range(len(sequences)) if row not in absent]
        if not here:
            return failed
        raws = [raw[row] for row in here]
        return failed + self._sample(logits[here], [sequences[row] for row in here], raws)

    def choose_late(self) -> list[Choice]:
        """The tokens of those that were late and are ready now."""
        choices: list[Choice] = []
        rows: list[Tensor] = []
        ready: list[_Late] = []
        waiting, self._late = self._late, []
        for late in waiting:
            if late.sequence.is_ended:
                continue
            try:
                row = _finished(late.sequence)
            except SteeringFailed as exc:
                choices.append(Choice(late.sequence, None, error=str(exc)))
                continue
            if row is None:
                self._late.append(late)
            else:
                rows.append(row)
                ready.append(late)
        if ready:
            choices += self._sample(
                torch.stack(rows), [late.sequence for late in ready], [late.raw for late in ready]
            )
        for choice in choices:
            choice.sequence.is_late = False
        return choices

    def _steer(
        self, logits: Tensor, sequences: list[Sequence], raw: list[Tensor | None]
    ) -> tuple[list[Choice], set[int]]:
        """Let processors and grammars change their rows. Who failed, and which rows cannot be sampled now."""
        steered = [(row, s, s.steering) for row, s in enumerate(sequences) if s.steering is not None]
        failed: list[Choice] = []
        absent: set[int] = set()
        begun: list[tuple[int, Sequence, Steering]] = []

        def fail(row: int, sequence: Sequence, text: str) -> None:
            failed.append(Choice(sequence, None, error=text))
            absent.add(row)

        for row, sequence, steering in steered:
            if not bool(torch.isfinite(logits[row].max())):
                fail(row, sequence, _NOT_FINITE)
                continue
            try:
                steering.begin(logits[row], sequence.tokens)
                begun.append((row, sequence, steering))
            except SteeringFailed as exc:
                fail(row, sequence, str(exc))
        for _, _, steering in begun:
            steering.wait()
        for row, sequence, _ in begun:
            try:
                changed = _finished(sequence)
            except SteeringFailed as exc:
                fail(row, sequence, str(exc))
                continue
            if changed is None:
                sequence.is_late = True
                self._late.append(_Late(sequence, raw[row]))
                absent.add(row)
            else:
                logits[row] = changed
        return failed, absent

    def _sample(self, logits: Tensor, sequences: list[Sequence], raw: list[Tensor | None]) -> list[Choice]:
        tokens = self._sampler.choose(logits, sequences)
        positions = _positions(sequences, tokens, raw)
        return [
            Choice(sequence, token, position, _reason(sequence) if token is None else None)
            for sequence, token, position in zip(sequences, tokens, positions, strict=True)
        ]


def _finished(sequence: Sequence) -> Tensor | None:
    """The changed row, or None while it is late. Raises SteeringFailed."""
    steering = sequence.steering
    if steering is None or not steering.is_done:
        return None
    return steering.finish()


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
        rows = torch.stack([row for _, row, _, _ in told])
        found = positions_of(rows, [token for _, _, token, _ in told], [count for _, _, _, count in told])
        for (place, _, _, _), position in zip(told, found, strict=True):
            positions[place] = position
    return positions
