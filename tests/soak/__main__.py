"""``python -m tests.soak``: load with cancels, stalls and engine errors; exit code 1 for a flaw."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.e2e.at_rest import is_at_rest
from tests.e2e.engines import NAMES, Served
from tests.e2e.request_lines import TRACED
from tests.e2e.word_model import write_word_model
from tests.faults.conftest import HOSTILE, warm
from tests.faults.stalling import DEEP_TOKENS
from tests.soak.books import Comparison, compare
from tests.soak.clients import Clients
from tests.soak.samples import Sample, Sampler, slope_mb_per_h

if TYPE_CHECKING:
    from tests.soak.clients import Told

# One request in so many fails in the engine.
_FAILING_EVERY = 100
_STALL_TIMEOUT_S = 2.0
_STEP_MS = 20
# Shorter runs see the warm-up and nothing else.
_SLOPE_FROM_MINUTES = 10.0
_SLOPE_GOAL_MB_PER_H = 1.0
_MOST_SHOWN = 20


def say(line: str) -> None:
    print(line, flush=True)


def soak(folder: Path, served: Served, minutes: float, rate: float, seed: int) -> int:
    """One run. Returns the exit code."""
    options = ["--max-num-seqs", "128", "--stall-timeout", str(_STALL_TIMEOUT_S)]
    options += ["--max-seq-len", str(2 * DEEP_TOKENS)]
    environ = {**TRACED, "HOSTILE_ENGINE": json.dumps({"failing_every": _FAILING_EVERY})}
    model = write_word_model(folder / "model")
    with served.stack(
        folder / "stack", model, *options, step_ms=_STEP_MS, program=HOSTILE, environ=environ
    ) as stack:
        warm(stack)
        worker = stack.workers[0]
        before = worker.wait_status(is_at_rest, 30.0)
        told: list[Told] = []
        with Sampler(stack, say) as sampler:
            first = sampler.take()
            asyncio.run(
                Clients(stack.http_port, stack.model(), Random(seed), told.append).run(minutes * 60, rate)
            )
        try:
            worker.wait_status(is_at_rest, 30.0)
        except AssertionError as exc:
            sampler.flaws.append(f"not at rest: {exc}")
        last = sampler.take()
        after = worker.status()
        found = compare(told, worker.log().splitlines(), before["outcomes"], after["outcomes"])
    flaws = [*sampler.flaws, *_flaws_at_rest(first, last), *found.flaws]
    _report(found, sampler.samples, minutes)
    for flaw in flaws[:_MOST_SHOWN]:
        say(f"FLAW {flaw}")
    verdict = "NOT as promised" if flaws else "the books balance"
    say(f"\n{len(told):,} requests, {len(flaws)} flaws: {verdict}")
    return 1 if flaws else 0


def _flaws_at_rest(first: Sample, last: Sample) -> list[str]:
    figures = {name: getattr(last, name) for name in ("live", "in_flight", "readers", "waiting")}
    flaws = [f"{name} is {figure} at rest" for name, figure in figures.items() if figure]
    if last.tasks > first.tasks:
        flaws.append(f"tasks grew from {first.tasks} to {last.tasks}")
    return flaws


def _report(found: Comparison, samples: list[Sample], minutes: float) -> None:
    first, last = samples[0], samples[-1]
    say("\n| the client saw | the worker says | requests |\n|---|---|---|")
    for (view, outcome), count in sorted(found.table.items()):
        say(f"| {view} | {outcome} | {count:,} |")
    say("\n| figure | value | goal |\n|---|---|---|")
    say(f"| RSS of the worker, MB | {first.worker_mb:.1f} -> {last.worker_mb:.1f} | |")
    say(f"| RSS of the frontend (not ours), MB | {first.frontend_mb:.1f} -> {last.frontend_mb:.1f} | |")
    if minutes >= _SLOPE_FROM_MINUTES:
        slope = slope_mb_per_h(samples)
        verdict = "" if slope <= _SLOPE_GOAL_MB_PER_H else " (missed)"
        say(f"| RSS slope after warm-up, MB/h | {slope:.2f}{verdict} | {_SLOPE_GOAL_MB_PER_H:g} |")
    say(f"| tasks at rest | {first.tasks} -> {last.tasks} | the same |")
    say(
        f"| most tasks, live, in flight | {max(each.tasks for each in samples)}, "
        f"{max(each.live for each in samples)}, {max(each.in_flight for each in samples)} | |"
    )
    say(f"| most messages waiting | {max(each.waiting for each in samples)} | |")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=6.0, help="new requests a second")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--engine", choices=NAMES, default=NAMES[0])
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        return soak(Path(folder), Served(options.engine), options.minutes, options.rate, options.seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
