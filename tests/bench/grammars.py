"""What grammars cost: ``python -m tests.bench.grammars``.

First the work for one step by itself, in CPU time: masks, which are a side lane's, and what the engine's
thread does with them.
Then, in a running engine, the gaps between the tokens of 15 plain streams beside one heavy request,
held against the same streams beside a sixteenth plain one. Goals: 6 ms a step with 64 guided rows; no
gap longer by more than 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch

from actors.engines.grammars.vocabulary import read_vocabulary
from actors.engines.torch import TorchConfig, TorchEngine
from actors.engines.torch.grammars.compiler import CompiledGrammar, compile_grammar
from protocols.errors import InvalidRequest
from protocols.spec import GenerationSpec, Guided, GuidedKind, Sampling, StopRules
from protocols.steps import EngineId
from service.models.resolution import resolve_model

ROWS = (1, 16, 64)
STREAMS = 15
_STEPS = 60

_PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["new", "old", "kept"]}, "minItems": 1},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


HEAVY: dict[str, tuple[GuidedKind, Any]] = {
    "a plain request": (GuidedKind.REGEX, None),
    "a usual schema": (GuidedKind.JSON, _PERSON),
    "31 objects in one another": (GuidedKind.JSON, _deep(31)),
    "500 optional properties": (
        GuidedKind.JSON,
        {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(500)}},
    ),
    "an ambiguous grammar": (GuidedKind.GRAMMAR, 'start: s\ns: s s | "a"'),
    "a very ambiguous grammar": (GuidedKind.GRAMMAR, 'start: s\ns: s s s | s s | "a" | "b" | ""'),
    "words of bounded length": (GuidedKind.REGEX, r"(\w{1,500}){1,500}"),
    "late repeated repetitions": (GuidedKind.REGEX, "z{20}((x{100}){100}){100}"),
}


def mask_costs(folder: Path) -> None:
    """CPU milliseconds of one step, by how many rows are guided."""
    vocabulary = read_vocabulary(folder, 49_152)
    grammar = compile_grammar(Guided(kind=GuidedKind.JSON, constraint=_PERSON), vocabulary, vocabulary.width)
    for rows in ROWS:
        masks: list[float] = []
        applied: list[float] = []
        for mask_s, apply_s in _steps(grammar, rows, vocabulary.width):
            masks.append(1e3 * mask_s)
            applied.append(1e3 * apply_s)
        print(
            f"{rows:3} guided rows: masks {statistics.median(masks):6.2f} ms a step (worst {max(masks):6.2f})"
            f", applied and accepted {statistics.median(applied):6.2f} (worst {max(applied):6.2f})"
        )


def _steps(grammar: CompiledGrammar, rows: int, width: int) -> Iterator[tuple[float, float]]:
    """CPU seconds for the masks, and for applying them and accepting a token; finished rows begin anew."""
    generator = torch.Generator().manual_seed(1)
    states = [grammar.new_state() for _ in range(rows)]
    for step in range(_STEPS):
        logits = torch.randn(rows, width, generator=generator)
        start_s = time.thread_time()
        for state in states:
            state.fill_mask()
        filled_s = time.thread_time()
        for state, row in zip(states, logits, strict=True):
            state.apply_mask(row)
        applied_s = time.thread_time()
        tokens = logits.argmax(dim=-1).tolist()
        chosen_s = time.thread_time()
        ended = [state.accept(token) for state, token in zip(states, tokens, strict=True)]
        accepted_s = time.thread_time()
        if step:
            yield filled_s - start_s, applied_s - filled_s + accepted_s - chosen_s
        states = [grammar.new_state() if end else state for state, end in zip(states, ended, strict=True)]


@dataclass(slots=True)
class Gaps:
    """Seconds between the tokens of the plain streams while the sixteenth request lived. ending: its own."""

    seconds: list[float] = field(default_factory=list)
    ending: str = ""

    def part_ms(self, part: float) -> float:
        """The gap that this part of all gaps does not exceed; 1 is the worst."""
        ordered = sorted(self.seconds)
        return 1e3 * ordered[round(part * (len(ordered) - 1))]


class Company:
    """Fifteen plain streams and one more request, in one engine."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine
        self._ids = count(1)

    async def beside(self, guided: Guided | None, tokens: int) -> Gaps:
        """Run the request beside the streams until it ends; the streams are aborted then."""
        gaps = Gaps()
        other = _spec(guided, tokens, seed=77)
        if guided is not None:
            try:
                other = self._engine.preparer.find(other) or await self._engine.preparer.prepare(other)
            except InvalidRequest as exc:
                gaps.ending = f"refused: {exc.allowed}"
                return gaps
        streams = [self._submit(_spec(None, 4 * tokens, seed=at)) for at in range(STREAMS)]
        last = dict.fromkeys(streams, 0.0)
        while not all(last.values()):
            await self._read(last, gaps, EngineId(0))
        gaps.seconds.clear()
        mine = self._submit(other)
        while not gaps.ending:
            await self._read(last, gaps, mine)
        for stream in streams:
            self._engine.abort(stream)
        while last:
            for delta in (await self._engine.next_step()).deltas:
                if delta.is_last:
                    last.pop(delta.engine_id, None)
        return gaps

    def _submit(self, spec: GenerationSpec) -> EngineId:
        engine_id = EngineId(next(self._ids))
        self._engine.submit(engine_id, spec)
        return engine_id

    async def _read(self, last: dict[EngineId, float], gaps: Gaps, mine: EngineId) -> None:
        step = await self._engine.next_step()
        for delta in step.deltas:
            if delta.engine_id == mine and delta.is_last:
                gaps.ending = delta.error or str(delta.finish_reason)
            elif delta.engine_id in last:
                if last[delta.engine_id]:
                    gaps.seconds.append(step.ended_s - last[delta.engine_id])
                last[delta.engine_id] = step.ended_s


def _spec(guided: Guided | None, tokens: int, seed: int) -> GenerationSpec:
    return GenerationSpec(
        prompt=tuple(100 + 37 * seed + 11 * at for at in range(40)),
        stop=StopRules(max_tokens=tokens),
        sampling=Sampling(temperature=1.0, seed=seed),
        guided=guided,
    )


async def delays(folder: Path, tokens: int, threads: int) -> None:
    """The gaps beside each heavy request, and beside a plain one."""
    engine = TorchEngine(TorchConfig(model_path=folder, kv_pool_tokens=16_384, threads=threads))
    print((await engine.start()).description)
    company = Company(engine)
    await company.beside(None, 8)
    for name, (kind, constraint) in HEAVY.items():
        guided = None if constraint is None else Guided(kind=kind, constraint=constraint)
        gaps = await company.beside(guided, tokens)
        if gaps.seconds:
            shown = [f"{gaps.part_ms(part):7.1f}" for part in (0.5, 0.95, 1.0)]
            print(f"{name:26} gap ms median {shown[0]}, 95 % {shown[1]}, worst {shown[2]}; {gaps.ending}")
        else:
            print(f"{name:26} {gaps.ending}")
    await engine.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    folder = resolve_model(options.model).path
    print(f"load average before: {os.getloadavg()}")
    mask_costs(folder)
    asyncio.run(delays(folder, options.tokens, options.threads))
    print(f"load average after: {os.getloadavg()}")


if __name__ == "__main__":
    main()
