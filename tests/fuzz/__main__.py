"""``python -m tests.fuzz``: hostile requests in process and over HTTP; exit code 1 for a broken promise."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.e2e.engines import NAMES, Served
from tests.fuzz.in_process import Findings, attack_engine
from tests.fuzz.over_http import HttpFindings, attack_frontend
from tests.fuzz.workers import synthetic_engine, torch_engine, write_tiny_model

_SEED = 20_261_130


def say(line: str) -> None:
    print(line, flush=True)


def report(title: str, findings: Findings) -> None:
    """The table of one run."""
    say(f"\n## {title}, seed {findings.seed}\n\n| figure | value |\n|---|---|")
    say(f"| hostile requests | {findings.requests:,} in {findings.seconds:.0f} s |")
    for kind, count in sorted(findings.kinds.items()):
        say(f"| {kind} | {count:,} |")
    say(f"| longest request, from its call to its last word | {findings.slowest_s:.3f} s |")
    before, after = findings.before, findings.after
    if before is not None and after is not None:
        say(f"| RSS, MB | {before.rss_mb:.0f} -> {after.rss_mb:.0f} |")
        say(f"| tracked objects | {before.objects:,} -> {after.objects:,} |")
        say(f"| tasks | {before.tasks} -> {after.tasks} |")
        say(f"| of requests, left at rest | {sum(after.kept.values()) - sum(before.kept.values())} |")
    say(f"| log lines, spans read | {findings.log_lines:,}, {findings.spans:,} |")
    say(f"| violations | {len(findings.violations)} |")


def report_http(findings: HttpFindings, engine: str) -> None:
    """The table of one run against a frontend."""
    say(f"\n## Over HTTP, engine {engine}, seed {findings.seed}\n\n| figure | value |\n|---|---|")
    say(f"| bodies | {findings.requests:,} in {findings.seconds:.0f} s |")
    for (route, status, outcome), count in sorted(findings.ends.items()):
        say(f"| {route}: {status}; the worker says {outcome} | {count:,} |")
    for outcome, count in findings.outcomes.items():
        say(f"| the worker's books: {outcome} | {count:,} |")
    say(f"| RSS of the worker, MB | {findings.rss_mb[0]:.0f} -> {findings.rss_mb[1]:.0f} |")
    say(f"| its tasks | {findings.tasks[0]} -> {findings.tasks[1]} |")
    say(f"| /health asked | {findings.health_polls:,} times |")
    say(f"| violations | {len(findings.violations)} |")


def write_violations(findings: Findings | HttpFindings, folder: Path) -> None:
    """Each with its request, into a file that can be read back."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (flaw, request) in enumerate(findings.violations, 1):
        path = folder / f"violation-{findings.seed}-{number}.txt"
        path.write_text(f"{flaw}\n\n{request}\n", encoding="utf-8", errors="backslashreplace")
        say(f"VIOLATION {flaw}\n  {path}")


def fuzz_in_process(folder: Path, requests: int, on_torch: int, seed: int) -> list[Findings]:
    """The share of each engine, reported as soon as it is there."""
    runs: list[Findings] = []
    if requests > on_torch:
        runs.append(attack_engine(synthetic_engine(), requests - on_torch, seed, say))
        report("In process, engine synthetic", runs[-1])
    if on_torch:
        runs.append(attack_engine(torch_engine(folder / "model"), on_torch, seed, say))
        report("In process, engine torch", runs[-1])
    return runs


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--in-process", type=int, metavar="N", help="hostile requests through the facade")
    parser.add_argument("--torch", type=int, metavar="N", default=3_000, help="of them on the torch engine")
    parser.add_argument("--http", type=int, metavar="N", help="mutated bodies through a real frontend")
    parser.add_argument("--engine", choices=NAMES, default=NAMES[0], help="over HTTP; synthetic: torch")
    parser.add_argument("--seed", type=int, default=_SEED, help="0: another one every time")
    parser.add_argument(
        "--violations", type=Path, default=Path("build/fuzz"), help="folder for what is found"
    )
    options = parser.parse_args(argv)
    seed = options.seed or secrets.randbits(32)
    say(f"seed {seed}")
    if options.in_process is None and options.http is None:
        options.in_process, options.http = 100_000, 10_000
    runs: list[Findings | HttpFindings] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.in_process:
            runs += fuzz_in_process(folder, options.in_process, min(options.torch, options.in_process), seed)
        if options.http:
            model, served = write_tiny_model(folder / "tiny"), Served(options.engine)
            over_http = attack_frontend(folder / "stack", served, model, options.http, seed, say)
            report_http(over_http, "trtllm" if served.is_trtllm else "torch")
            runs.append(over_http)
    for findings in runs:
        write_violations(findings, options.violations)
    return 1 if any(findings.violations for findings in runs) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
