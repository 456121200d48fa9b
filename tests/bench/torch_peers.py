"""Who takes turns in the engine's benchmark: this engine, transformers in two ways, llama.cpp.

All get the same prompts as ids and make the same number of tokens, greedily. What is kept of a run is
when each token came, so that prefill and decode are told apart in the same way for everybody.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers

from actors.engines.torch import TorchEngine
from protocols.spec import GenerationSpec, StopRules
from protocols.steps import EngineId

_ROOT = Path(__file__).resolve().parents[2]
LLAMA_FOLDER = _ROOT / ".tools" / "llama"
LLAMA_HINT = f"pip install --no-deps --target {LLAMA_FOLDER.relative_to(_ROOT)} xllamacpp==2026.10.11549"

Prompts = Sequence[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Run:
    """started_s and, per request, when each of its tokens came: seconds of one clock."""

    started_s: float
    times_s: list[list[float]]
    cpu_s: float

    @property
    def prefill_s(self) -> float:
        """Until the last request has its first token."""
        return max(times[0] for times in self.times_s) - self.started_s

    @property
    def decode_tokens_per_s(self) -> float:
        """While all decode: from the last first token to the first last one. 0 where that is no time."""
        begin = max(times[0] for times in self.times_s)
        end = min(times[-1] for times in self.times_s)
        tokens = sum(begin < at <= end for times in self.times_s for at in times)
        return tokens / (end - begin) if end > begin else 0.0


class Peer(Protocol):
    """A contestant."""

    async def run(self, prompts: Prompts, tokens: int, salt: str) -> Run:
        """Answer all prompts at once, each with so many tokens; nothing read under another salt is used."""
        ...


class OurEngine:
    """The engine as the executor uses it."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine
        self._ids = itertools.count(1)

    async def run(self, prompts: Prompts, tokens: int, salt: str) -> Run:
        times: dict[EngineId, list[float]] = {}
        started_s, cpu_s = time.perf_counter(), time.process_time()
        for prompt in prompts:
            engine_id = EngineId(next(self._ids))
            times[engine_id] = []
            spec = GenerationSpec(prompt=tuple(prompt), stop=StopRules(max_tokens=tokens), cache_salt=salt)
            self._engine.submit(engine_id, spec)
        live = len(times)
        while live:
            deltas = (await self._engine.next_step()).deltas
            now_s = time.perf_counter()
            for delta in deltas:
                times[delta.engine_id] += [now_s] * len(delta.token_ids)
                live -= delta.is_last
        return Run(started_s, list(times.values()), time.process_time() - cpu_s)


class Generate:
    """transformers' own ``generate``, all prompts as one batch."""

    def __init__(self, model: Any) -> None:
        self._model = model

    async def run(self, prompts: Prompts, tokens: int, salt: str) -> Run:
        times: list[float] = []

        def note(ids: Any, _scores: Any, **_: Any) -> Any:
            times.append(time.perf_counter())
            return torch.zeros(len(ids), dtype=torch.bool)

        ids = torch.tensor(prompts)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        with torch.inference_mode():
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                stopping_criteria=transformers.StoppingCriteriaList([note]),
            )
        return Run(started_s, [times] * len(prompts), time.process_time() - cpu_s)


class Continuous:
    """transformers' continuous batching, with the same size of step as ours and room for as many tokens."""

    def __init__(self, model: Any, pool_tokens: int, page_tokens: int) -> None:
        self._model = model
        self._pages, self._page_tokens = pool_tokens // page_tokens, page_tokens

    async def run(self, prompts: Prompts, tokens: int, salt: str) -> Run:
        batching: Any = transformers.ContinuousBatchingConfig(
            page_size=self._page_tokens, num_blocks=self._pages, max_batch_tokens=512
        )
        config: Any = transformers.GenerationConfig(
            do_sample=False, max_new_tokens=tokens, eos_token_id=-1, pad_token_id=0
        )
        cpu_s = time.process_time()
        found = self._model.generate_batch(
            inputs=[list(prompt) for prompt in prompts],
            generation_config=config,
            continuous_batching_config=batching,
            record_timestamps=True,
            warmup=False,
        )
        cpu_s = time.process_time() - cpu_s
        # Since the first request was scheduled: what comes before is the manager's own start.
        started_s = min(output.lifespan[0] for output in found.values())
        return Run(started_s, [list(output.timestamps) for output in found.values()], cpu_s)


class Child:
    """A contestant in a process of its own, which sleeps while it is not its turn."""

    def __init__(self, argv: Sequence[str], path: Sequence[Path] = ()) -> None:
        """argv: of python. path: folders in front of the project's."""
        self._child = subprocess.Popen(
            [sys.executable, *argv],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in (*path, _ROOT))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def answer(self) -> Any:
        """The next line of JSON it says."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._child.args!r} ended with status {self._child.wait()}")
        return json.loads(line)

    async def run(self, prompts: Prompts, tokens: int, salt: str) -> Run:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"prompts": prompts, "tokens": tokens, "salt": salt}) + "\n")
        self._child.stdin.flush()
        return Run(**self.answer())

    def close(self) -> None:
        """End the process."""
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def llama_child(gguf: Path, threads: int, slots: int, context_tokens: int) -> Child:
    """llama.cpp with Q4_1 weights: an eighth of ours, so this is no comparison of like with like."""
    argv = ["-m", "tests.bench.torch_llama", str(gguf), *map(str, (threads, slots, context_tokens))]
    return Child(argv, [LLAMA_FOLDER])
