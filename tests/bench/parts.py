"""The two parts that go through the real frontend: as fast as it goes, and at the pace of a decode step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.bench.arena import Arena, Contestant, Shape, our_worker, peer
from tests.bench.figures import interleave
from tests.bench.load import Result

OURS, UNMERGED, SAMPLE, TICK = "ours", "unmerged", "sample", "tick"
STEP_MS = 20.0
_EVERYBODY = (OURS, SAMPLE, TICK)
# Connections, tokenizer and code paths are touched once before anything counts.
_WARM_UP = Shape(concurrency=64, requests=64, tokens=32)


@dataclass(frozen=True, slots=True)
class Case:
    """One row group: who takes turns, with what load, how often."""

    part: str
    shape: Shape
    contestants: tuple[str, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A case and its runs, by contestant, in the order of the rounds."""

    case: Case
    runs: Mapping[str, Sequence[Result]]


SATURATED, PACED = "saturated", "paced"
_DEFAULT = (
    Case(SATURATED, Shape(1, 32), _EVERYBODY, 5),
    Case(SATURATED, Shape(16, 128), _EVERYBODY, 5),
    Case(SATURATED, Shape(64, 256), (*_EVERYBODY, UNMERGED), 5),
    Case(PACED, Shape(1, 2), _EVERYBODY, 3),
    Case(PACED, Shape(16, 32), _EVERYBODY, 3),
    Case(PACED, Shape(64, 128), _EVERYBODY, 5),
)
_WIDEST = (
    Case(SATURATED, Shape(256, 768), _EVERYBODY, 3),
    Case(PACED, Shape(256, 512), _EVERYBODY, 3),
)
_QUICK = (
    Case(SATURATED, Shape(64, 128), (*_EVERYBODY, UNMERGED), 3),
    Case(PACED, Shape(64, 64), _EVERYBODY, 3),
)


def cases(*, is_quick: bool, is_full: bool, rounds: int | None) -> list[Case]:
    """What to run. rounds: instead of each case's own number."""
    chosen = _QUICK if is_quick else (*_DEFAULT, *(_WIDEST if is_full else ()))
    return [case if rounds is None else replace(case, rounds=rounds) for case in chosen]


def run_part(
    part: str, chosen: Sequence[Case], folder: Path, model: Path, on_case: Callable[[Measured], None]
) -> None:
    """Start everybody once, then measure case by case."""
    wanted = [case for case in chosen if case.part == part]
    if not wanted:
        return
    names = dict.fromkeys(name for case in wanted for name in case.contestants)
    step_ms = 0.0 if part == SATURATED else STEP_MS
    with Arena(folder / part, [_contestant(name, model, step_ms) for name in names]) as arena:
        for name in names:
            arena.measure(name, _WARM_UP)
        for case in wanted:
            runs = interleave(case.contestants, case.rounds, partial(arena.measure, shape=case.shape))
            on_case(Measured(case, runs))


def _contestant(name: str, model: Path, step_ms: float) -> Contestant:
    if name == OURS:
        return our_worker(name, model, step_ms)
    if name == UNMERGED:
        return our_worker(name, model, step_ms, "--chunk-tokens", "1")
    return peer(name, model, step_ms)
