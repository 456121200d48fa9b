"""The embedded engine beside its peers: ``python -m tests.bench.torch_engine [--quick]``, or ``make bench``.

Everybody takes turns on one machine with the same prompts and the same number of tokens, so what changes
on the machine meets all of them; a ratio is the median over rounds of two neighbours in time. Besides:
the matrix products of a step alone, and the second of two equal prompts against the first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from service.models.resolution import resolve_model
from tests.bench.torch_child import CONTINUOUS, GENERATE, OURS, PAGE_TOKENS
from tests.bench.torch_gguf import gguf_file
from tests.bench.torch_peers import LLAMA_FOLDER, LLAMA_HINT, Child, llama_child
from tests.bench.torch_products import Products
from tests.bench.torch_tables import Measured, print_case, print_reuse

_ROOT = Path(__file__).resolve().parents[2]
_OUTPUT = _ROOT / "build" / "bench_torch.json"
_PROMPTS = _ROOT / "tests" / "data" / "prompts_20.txt"
LLAMA = "llama.cpp Q4_1"
_STEP_TOKENS = 512
_logging: Any = transformers.logging
# No case is begun once the rest would not fit into this.
BUDGET_S = 780.0


@dataclass(frozen=True, slots=True)
class Case:
    """So many prompts of this length at once, each answered with ``tokens``. about_s: of a round, roughly."""

    batch: int
    context: int
    tokens: int
    rounds: int
    about_s: float


# Most wanted first: what does not fit into the time is left out at the end.
FULL = (
    Case(16, 128, 48, 3, 55),
    Case(1, 128, 48, 3, 16),
    Case(4, 128, 48, 3, 24),
    Case(64, 128, 48, 2, 165),
    Case(1, 2048, 32, 2, 45),
    Case(4, 2048, 48, 1, 150),
)
QUICK = (Case(16, 128, 32, 2, 50),)


@dataclass(slots=True)
class Arena:
    """Everybody, ready to run. gguf: for llama.cpp, started for each case; None where it is not installed."""

    peers: dict[str, Child]
    products: Products
    ids: list[int]
    gguf: Path | None
    threads: int

    def prompts(self, batch: int, length: int) -> list[tuple[int, ...]]:
        """Real text, another place of it for each."""
        size = len(self.ids)
        return [tuple(self.ids[(101 * i + j) % size] for j in range(length)) for i in range(batch)]


def open_arena(folder: Path, threads: int, pool_tokens: int) -> tuple[Arena, str]:
    """Start everybody; what our engine says about itself. llama.cpp takes part where it is installed."""
    auto: Any = transformers.AutoModelForCausalLM
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    has_llama = (LLAMA_FOLDER / "xllamacpp").is_dir()
    if not has_llama:
        print(f"llama.cpp takes no part; to have it: {LLAMA_HINT}")
    # The peer that counts in large pages gets room for two of them more a request, so that nobody waits.
    room = {OURS: pool_tokens + 512, CONTINUOUS: 2 * pool_tokens, GENERATE: 0}
    peers = {
        name: Child(["-m", "tests.bench.torch_child", name, str(folder), str(threads), str(tokens)])
        for name, tokens in room.items()
    }
    descriptions = {name: peer.answer() for name, peer in peers.items()}
    arena = Arena(
        peers=peers,
        products=Products(auto.from_pretrained(folder, dtype=torch.float32).eval()),
        ids=tokenizer(_PROMPTS.read_text(encoding="utf-8"))["input_ids"],
        gguf=gguf_file() if has_llama else None,
        threads=threads,
    )
    return arena, str(descriptions[OURS])


@contextmanager
def everybody(arena: Arena, case: Case) -> Generator[dict[str, Child]]:
    """The contestants of a case, llama.cpp with as many slots as it has prompts."""
    if arena.gguf is None:
        yield arena.peers
        return
    child = llama_child(arena.gguf, arena.threads, case.batch, case.context + case.tokens + 64)
    try:
        yield {**arena.peers, LLAMA: child}
    finally:
        child.close()


async def measure(arena: Arena, case: Case) -> Measured:
    """Everybody in turn, then the products of the same shapes."""
    measured = Measured(case.batch, case.context, case.tokens)
    prompts = arena.prompts(case.batch, case.context)
    rows = min(_STEP_TOKENS, case.batch * case.context)
    with everybody(arena, case) as peers:
        for peer in peers.values():
            await peer.run(arena.prompts(1, 40), 8, "warm")
        for turn in range(case.rounds):
            for name, peer in peers.items():
                begun_s = time.monotonic()
                salt = f"{case.batch} x {case.context}, {turn}"
                measured.add(name, await peer.run(prompts, case.tokens, salt))
                _tell(f"{case.batch} x {case.context}, {turn}: {name} {time.monotonic() - begun_s:.1f} s")
            measured.decode_products_s.append(arena.products.seconds(case.batch, case.batch))
            measured.prefill_products_s.append(arena.products.seconds(rows, 1) / rows)
    return measured


def _tell(progress: str) -> None:
    """To whoever watches; the tables are on standard output."""
    print(progress, file=sys.stderr, flush=True)


async def measure_reuse(arena: Arena, length: int, rounds: int) -> list[tuple[float, float]]:
    """Seconds to the first token of a prompt, and of the same prompt again."""
    found: list[tuple[float, float]] = []
    for turn in range(rounds):
        prompts = arena.prompts(1, length)
        first, second = [await arena.peers[OURS].run(prompts, 2, f"reuse-{turn}") for _ in range(2)]
        found.append((first.prefill_s, second.prefill_s))
    return found


def _pages(case: Case) -> int:
    """Of one sequence."""
    return -(-(case.context + case.tokens) // PAGE_TOKENS)


async def compare(folder: Path, *, is_quick: bool, threads: int) -> dict[str, Any]:
    """All cases; what was measured, as JSON."""
    started_s = time.monotonic()
    cases = QUICK if is_quick else FULL
    # Whole pages of the peer with the largest ones, so that nobody waits for room.
    pool_tokens = max(case.batch * _pages(case) * PAGE_TOKENS for case in cases)
    cores = threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    arena, description = open_arena(folder, cores, pool_tokens)
    print(f"\n## The embedded engine\n\n{description}; load average {os.getloadavg()[0]:.1f}")
    report: dict[str, Any] = {"engine": description, "load_before": os.getloadavg(), "cases": []}
    try:
        for case in cases:
            if time.monotonic() - started_s + case.rounds * case.about_s > BUDGET_S:
                print(f"\nbatch {case.batch}, context {case.context}: left out, no time for it")
                continue
            measured = await measure(arena, case)
            print_case(measured, OURS)
            report["cases"].append(measured.as_json())
        lengths = (128,) if is_quick else (128, 2048)
        report["reuse"] = {length: await measure_reuse(arena, length, 3) for length in lengths}
        print_reuse(report["reuse"])
    finally:
        for peer in arena.peers.values():
            peer.close()
    return report | {"load_after": os.getloadavg(), "seconds": time.monotonic() - started_s}


def main() -> None:
    """Run, print tables in markdown, keep every run in build/."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--quick", action="store_true", help="batch 16 only, about two minutes")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    given = parser.parse_args()
    _logging.set_verbosity_error()
    _logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    folder = resolve_model(given.model).path
    report = asyncio.run(compare(folder, is_quick=given.quick, threads=given.threads))
    _OUTPUT.parent.mkdir(exist_ok=True)
    _OUTPUT.write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(f"\nload average after: {os.getloadavg()}; {report['seconds']:.0f} s; all runs in {_OUTPUT}")


if __name__ == "__main__":
    main()
