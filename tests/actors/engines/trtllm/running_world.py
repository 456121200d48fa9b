"""Requests in an engine that answers by hand: what `Running` hears of it, and whom it tells what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.engines.trtllm.answers.collecting import StepCollector
from actors.engines.trtllm.answers.following import Reading
from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.life.health import cause_of_death
from actors.engines.trtllm.loading import Loaded
from actors.engines.trtllm.processors.steering import Steering
from actors.engines.trtllm.requests.asking import Asking
from actors.engines.trtllm.running import Hooks, Running
from protocols.engine import EngineInfo
from protocols.steps import Delta, EngineId
from tests.actors.engines.trtllm.scripted import no_timing, spec
from tests.actors.engines.trtllm.scripted_llm import ScriptedLLM, ScriptedOutput

if TYPE_CHECKING:
    from actors.engines.trtllm.library import Library
    from protocols.spec import GenerationSpec

Look = Callable[[], Awaitable[BaseException | None]]


@dataclass
class Engine:
    """What there is of one, and who was told what."""

    llm: ScriptedLLM
    running: Running
    steering: Steering
    steps: StepCollector
    deaths: list[BaseException]
    doubts: list[None]
    finished: list[Delta]

    def submit(self, number: int = 1, asked: GenerationSpec | None = None) -> ScriptedOutput:
        """One request; what the library gave for it."""
        self.running.submit(EngineId(number), asked or spec())
        return self.llm.outputs[-1]

    async def heard(self, count: int = 1) -> list[Delta]:
        """So many deltas, or more that came with them."""
        deltas: list[Delta] = []
        while len(deltas) < count:
            step = await asyncio.wait_for(self.steps.next_step(lambda: self.running.running), 5)
            deltas += step.deltas
        return deltas


def empty_engine(library: Library, look: Look | None = None, **settings: Any) -> Engine:
    """With nothing in it. look: at its health. settings: fields of its configuration."""
    llm, steps = ScriptedLLM(), StepCollector()
    config = TrtllmConfig(model_path=Path("model"), vocab_size=100, context_length=64, **settings)
    info = EngineInfo(model="m", context_length=64, max_num_seqs=4, vocab_size=100)
    loaded = Loaded(library, llm, info)
    deaths: list[BaseException] = []
    doubts: list[None] = []
    finished: list[Delta] = []

    async def look_once() -> BaseException | None:
        return cause_of_death(llm)

    hooks = Hooks(
        Reading(dict, no_timing),
        deaths.append,
        lambda: doubts.append(None),
        look or look_once,
        lambda last, _result: finished.append(last),
    )
    steering = Steering(config)
    running = Running(loaded, Asking(library, config, lambda: 77), steering, steps, hooks)
    return Engine(llm, running, steering, steps, deaths, doubts, finished)
