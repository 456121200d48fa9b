"""``python -m tests.bench [--quick | --full] [--only NAME]``: run, print, and write build/bench.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.bench.cancel import measure_cancels
from tests.bench.in_process import InProcessCase
from tests.bench.parts import PACED, SATURATED, Measured, cases, run_part
from tests.bench.report import as_json, print_cancels, print_case, print_in_process
from tests.e2e.word_model import write_word_model

_ROOT = Path(__file__).resolve().parents[2]
_OUTPUT = _ROOT / "build" / "bench.json"
IN_PROCESS, CANCEL, TORCH = "in-process", "cancel", "torch"


def main(argv: Sequence[str] | None = None) -> None:
    """Everything, or the part that ``--only`` names."""
    given = _arguments(argv)
    report: dict[str, Any] = {
        "machine": _machine(),
        "load_before": os.getloadavg(),
        "cases": [],
        "in_process": [],
    }
    print(f"{report['machine']}\nload average before: {report['load_before']}")

    def on_case(measured: Measured) -> None:
        print_case(measured)
        report["cases"].append(as_json(measured))

    chosen = cases(is_quick=given.quick, is_full=given.full, rounds=given.rounds)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        model = write_word_model(Path(folder) / "word-model")
        for part in (SATURATED, PACED):
            if given.only in (None, part):
                run_part(part, chosen, Path(folder), model, on_case)
        if given.only == CANCEL or (given.full and given.only is None):
            cancels = measure_cancels(Path(folder), model)
            print_cancels(cancels)
            report["cancels"] = [asdict(case) for case in cancels]
    if given.only in (None, IN_PROCESS):
        found = _in_process(given.rounds or (3 if given.quick else 5))
        print_in_process(found)
        report["in_process"] = [asdict(case) for case in found]
    if given.only in (None, TORCH):
        _torch_engine(is_quick=given.quick)
    report |= {"load_after": os.getloadavg(), "seconds": time.monotonic() - started_s}
    _OUTPUT.parent.mkdir(exist_ok=True)
    _OUTPUT.write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(f"\nload average after: {report['load_after']}; {report['seconds']:.0f} s; all runs in {_OUTPUT}")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Benchmarks; see docs/performance.md."
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--quick", action="store_true", help="c = 64 only, batch 16 only, short runs: four minutes"
    )
    length.add_argument("--full", action="store_true", help="also c = 256, and clients that hang up")
    parser.add_argument("--only", choices=(SATURATED, PACED, CANCEL, IN_PROCESS, TORCH), help="one part")
    parser.add_argument("--rounds", type=int, help="turns of every contestant, instead of 3 or 5")
    return parser.parse_args(argv)


def _in_process(repeats: int) -> list[InProcessCase]:
    """In a process of its own, so that nothing of ours is in its heap. Its log lines go nowhere."""
    argv = [sys.executable, "-m", "tests.bench.in_process", str(repeats)]
    done = subprocess.run(argv, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return [InProcessCase(**case) for case in json.loads(done.stdout)]


def _torch_engine(*, is_quick: bool) -> None:
    """In a process of its own, which loads models and prints its own tables; its runs are in a file, too."""
    argv = [sys.executable, "-m", "tests.bench.torch_engine", *(["--quick"] if is_quick else [])]
    sys.stdout.flush()
    subprocess.run(argv, cwd=_ROOT, check=True)


def _machine() -> str:
    """What a reader must know to compare."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("ai-dynamo", "anyio", "uvloop", "msgspec")
    )
    return f"{os.cpu_count()} x {cpu}, Python {platform.python_version()}, {versions}"


if __name__ == "__main__":
    main()
