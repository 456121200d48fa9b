"""From runs to figures: medians of each contestant, and ratios within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.load import Result


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that a run tells. name: as in the JSON. unit: of the value that ``of`` gives."""

    name: str
    unit: str
    of: Callable[[Result], float]


FIGURES = (
    Figure("tokens_per_s", "tok/s", lambda run: run.tokens / run.wall_s),
    Figure("worker_cpu", "us/tok", lambda run: run.cpu_s["worker"] / run.tokens * 1e6),
    Figure("frontend_cpu", "us/tok", lambda run: run.cpu_s["frontend"] / run.tokens * 1e6),
    Figure("chunks_per_token", "chunks/tok", lambda run: run.chunks / run.tokens),
    Figure("ttft_p50", "ms", lambda run: run.ttft_p50_s * 1e3),
    Figure("ttft_p99", "ms", lambda run: run.ttft_p99_s * 1e3),
    Figure("itl_p99", "ms", lambda run: run.gap_p99_s * 1e3),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median, lowest and highest over the rounds: runs of one round are neighbours in time."""

    median: float
    low: float
    high: float


def medians(runs: Sequence[Result]) -> dict[str, float]:
    """Every figure of one contestant."""
    return {figure.name: statistics.median(figure.of(run) for run in runs) for figure in FIGURES}


def ratios(ours: Sequence[Result], theirs: Sequence[Result]) -> dict[str, Ratio]:
    """Every figure of ours over theirs, round by round."""
    found: dict[str, Ratio] = {}
    for figure in FIGURES:
        each = [figure.of(a) / max(figure.of(b), 1e-9) for a, b in zip(ours, theirs, strict=True)]
        found[figure.name] = Ratio(statistics.median(each), min(each), max(each))
    return found


def interleave(
    names: Sequence[str], rounds: int, run_one: Callable[[str], Result]
) -> Mapping[str, list[Result]]:
    """A B C A B C ...: what changes on the machine meanwhile meets all of them."""
    runs: dict[str, list[Result]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            runs[name].append(run_one(name))
    return runs
