"""The tables on the terminal, and the same figures as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.bench.cancel import CancelCase
from tests.bench.figures import FIGURES, medians, ratios
from tests.bench.goals import CANCEL_MS, REQUEST_OVERHEAD_US, goal_of
from tests.bench.in_process import BARE, InProcessCase
from tests.bench.parts import PACED, SATURATED, Measured

_TITLES = {
    "tokens_per_s": "tok/s",
    "worker_cpu": "worker",
    "frontend_cpu": "frontend",
    "chunks_per_token": "chunks",
    "ttft_p50": "TTFT p50",
    "ttft_p99": "TTFT p99",
    "itl_p99": "ITL p99",
}
_UNITS = {
    SATURATED: "saturated: the engine waits for nothing",
    PACED: "paced: a token per request every 20 ms",
}
_NAME, _CELL = 20, 11


def print_case(measured: Measured) -> None:
    """Medians of every contestant, then ratios, then the goals that are met or missed."""
    case = measured.case
    print(
        f"\n{_UNITS[case.part]}; c = {case.shape.concurrency}, {case.rounds} rounds of "
        f"{case.shape.requests} requests x {case.shape.tokens} tokens"
    )
    print(_line("", [_TITLES[figure.name] for figure in FIGURES]))
    print(_line("", [figure.unit for figure in FIGURES]))
    for name, runs in measured.runs.items():
        found = medians(runs)
        print(_line(name, [f"{found[figure.name]:.4g}" for figure in FIGURES]))
    for one, other in _pairs(measured):
        each = ratios(measured.runs[one], measured.runs[other])
        cpu = each["worker_cpu"]
        spread = f"   worker {cpu.low:.2f} to {cpu.high:.2f}"
        print(_line(f"{one} / {other}", [f"{each[figure.name].median:.2f}x" for figure in FIGURES]) + spread)
    for line in _verdicts(measured):
        print(f"  {line}")


def _line(title: str, cells: Sequence[str]) -> str:
    return f"  {title:<{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)


def _pairs(measured: Measured) -> list[tuple[str, str]]:
    peers = [name for name in measured.runs if name in ("sample", "tick")]
    ours = [name for name in measured.runs if name not in peers]
    return [(one, other) for one in ours for other in peers]


def _verdicts(measured: Measured) -> list[str]:
    lines: list[str] = []
    case = measured.case
    for one, other in _pairs(measured):
        for name, ratio in ratios(measured.runs[one], measured.runs[other]).items():
            goal = goal_of(case.part, case.shape.concurrency, one, other, name)
            if goal is not None:
                lines.append(f"{_verdict(ratio.median, goal)}  {one} / {other} {name}: {ratio.median:.3f}x")
    return lines


def _verdict(value: float, goal: float) -> str:
    return f"{'met ' if value <= goal else 'MISSED'} goal <= {goal:g}"


def print_in_process(cases: list[InProcessCase]) -> None:
    """Microseconds of CPU, and what each layer adds to a bare generator."""
    print("\nin process, without the framework's runtime; us of CPU, medians")
    for case in cases:
        per = "request" if case.tokens == 1 else "token"
        print(f"  c = {case.concurrency}, {case.tokens} token(s) a request, per {per}")
        for name in case.us:
            over = case.over_bare(name)
            added = (
                f"   +{over.median:.1f} ({over.low:.1f} to {over.high:.1f}) over bare" if name != BARE else ""
            )
            print(f"    {name:<16}{case.median_us(name):>8.1f}{added}")
        for name, goal_us in REQUEST_OVERHEAD_US.items():
            if per == "request":
                over_us = case.over_bare(name).median
                print(f"    {_verdict(over_us, goal_us)} us a request, {name}: {over_us:.0f} us")


def print_cancels(cases: list[CancelCase]) -> None:
    """From a client's close to the end of its request in the worker."""
    for case in cases:
        p50, p99, worst = case.median_ms, case.percentile_ms(0.99), max(case.delays_ms)
        print(f"\nclient hangs up, beside {case.beside}, {len(case.delays_ms)} times")
        print(f"  ms to the end of its request: p50 {p50:.2f}, p99 {p99:.2f}, most {worst:.2f}")
        print(f"  {_verdict(p99, CANCEL_MS[case.beside])} ms, p99: {p99:.2f} ms")


def as_json(measured: Measured) -> dict[str, Any]:
    """Everything that was printed, and every single run."""
    case = measured.case
    return {
        **asdict(case),
        "medians": {name: medians(runs) for name, runs in measured.runs.items()},
        "ratios": {
            f"{one}/{other}": {
                name: asdict(ratio)
                for name, ratio in ratios(measured.runs[one], measured.runs[other]).items()
            }
            for one, other in _pairs(measured)
        },
        "runs": {name: [asdict(run) for run in runs] for name, runs in measured.runs.items()},
    }
