"""The engine's figures: what was measured of one case, and the tables, in markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.bench.torch_peers import Run

# Ratio of our decode speed to a peer's that is to be reached, by batch; at context 128.
GOALS: Mapping[tuple[int, str], float] = {
    (16, "continuous batching"): 2.2,
    (16, "llama.cpp Q4_1"): 1.0,
    (64, "llama.cpp Q4_1"): 1.6,
}


@dataclass(slots=True)
class Measured:
    """Runs by contestant, in the order of the rounds. products: seconds of a decode step, a prompt token."""

    batch: int
    context: int
    tokens: int
    runs: dict[str, list[Run]] = field(default_factory=dict[str, list[Run]])
    decode_products_s: list[float] = field(default_factory=list[float])
    prefill_products_s: list[float] = field(default_factory=list[float])

    def add(self, name: str, run: Run) -> None:
        """One more run of a contestant."""
        self.runs.setdefault(name, []).append(run)

    def prefill(self, name: str) -> list[float]:
        """Prompt tokens per second, round by round."""
        return [self.batch * self.context / run.prefill_s for run in self.runs[name]]

    def decode(self, name: str) -> list[float]:
        """Output tokens per second, round by round."""
        return [run.decode_tokens_per_s for run in self.runs[name]]

    def as_json(self) -> dict[str, Any]:
        """Everything, with the figures of each contestant."""
        figures = {name: {"prefill": self.prefill(name), "decode": self.decode(name)} for name in self.runs}
        return asdict(self) | {"tokens_per_s": figures}


def print_case(measured: Measured, ours: str) -> None:
    """Medians, the best run, our ratio to each peer, and what of our time the products alone take."""
    print(f"\n### batch {measured.batch}, context {measured.context}, {measured.tokens} tokens each\n")
    print("| | prefill tok/s (best) | ours is | decode tok/s (best) | ours is | CPU s of a run |")
    print("|---|---|---|---|---|---|")
    for name, runs in measured.runs.items():
        prefill, decode = measured.prefill(name), measured.decode(name)
        print(
            f"| {name} | {_middle(prefill)} | {_ratio(measured.prefill(ours), prefill)} "
            f"| {_middle(decode)} | {_ratio(measured.decode(ours), decode)} "
            f"| {statistics.median(run.cpu_s for run in runs):.1f} |"
        )
    step_s = [measured.batch / rate for rate in measured.decode(ours) if rate]
    share = [alone / step for alone, step in zip(measured.decode_products_s, step_s, strict=False)]
    prompt = [
        alone * rate for alone, rate in zip(measured.prefill_products_s, measured.prefill(ours), strict=True)
    ]
    print(f"\nproducts alone: {_percent(share)} of our decode step, {_percent(prompt)} of our prefill")
    for line in _verdicts(measured, ours):
        print(line)
    print(end="", flush=True)


def print_reuse(found: Mapping[int, Sequence[tuple[float, float]]]) -> None:
    """Time to the first token: of a prompt, of the same one again."""
    print("\n### prefix reuse\n\n| prompt tokens | first TTFT ms | second | ratio |\n|---|---|---|---|")
    for length, pairs in found.items():
        first, second = (statistics.median(pair[place] for pair in pairs) for place in range(2))
        ratio = statistics.median(second / first for first, second in pairs)
        print(f"| {length} | {1e3 * first:.0f} | {1e3 * second:.0f} | {ratio:.2f} |")


def _middle(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):.1f} ({max(rates):.1f})"


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Median of the rounds' ratios, and their range."""
    each = [mine / other for mine, other in zip(ours, theirs, strict=True) if other]
    if not each:
        return "-"
    return f"{statistics.median(each):.2f}x ({min(each):.2f} to {max(each):.2f})"


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * statistics.median(shares):.0f} %" if shares else "-"


def _verdicts(measured: Measured, ours: str) -> list[str]:
    lines: list[str] = []
    for (batch, name), goal in GOALS.items():
        if batch == measured.batch and measured.context == 128 and name in measured.runs:
            pairs = zip(measured.decode(ours), measured.decode(name), strict=True)
            ratios = [mine / other for mine, other in pairs if other]
            if not ratios:
                lines.append(f"no figure for {name}: its requests never decoded all at once")
                continue
            ratio = statistics.median(ratios)
            lines.append(f"{'met' if ratio >= goal else 'MISSED'}: {ratio:.2f}x {name}, goal >= {goal:g}x")
    return lines
