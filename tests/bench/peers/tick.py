"""The tick control: a bare generator without a pipeline, woken by one step timer that all requests share.

Waking all streams in one turn of the loop is cheaper than a sleep of their own for each, with or without
actors. Against this peer that gain cancels out, and what is left is the price of the graph.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from dynamo._core import Context
from dynamo.common.backend.engine import (
    EngineConfig,
    GenerateChunk,
    GenerateRequest,
    LLMEngine,
    LlmRegistration,
)
from dynamo.common.backend.run import run
from dynamo.common.backend.worker import WorkerConfig

from actors.engines.synthetic import FIRST_TOKEN_ID
from tests.bench.peers.start import PeerOptions, peer_options, worker_config


class StepTimer:
    """Ends a step for everybody who waits, on a grid of ``step_s``. Sleeps when nobody waits."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._due_s = 0.0
        self._waiting: list[asyncio.Future[None]] = []

    async def wait_step(self) -> None:
        """Until the step under way ends; with no pace, one turn of the loop."""
        if not self._step_s:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        if not self._waiting:
            now_s = loop.time()
            following_s = self._due_s + self._step_s
            self._due_s = following_s if following_s > now_s else now_s + self._step_s
            loop.call_at(self._due_s, self._end_step)
        future = loop.create_future()
        self._waiting.append(future)
        await future

    def _end_step(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class TickEngine(LLMEngine):
    """Says 1000, 1001, ... one id a chunk."""

    def __init__(self, options: PeerOptions) -> None:
        self._options = options
        self._timer = StepTimer(options.step_s)

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[TickEngine, WorkerConfig]:
        options = peer_options()
        return cls(options), worker_config(options)

    async def start(self, worker_id: int) -> EngineConfig:
        return EngineConfig(
            model=self._options.model,
            served_model_name=self._options.name,
            llm=LlmRegistration(context_length=2048, max_num_seqs=256),
        )

    async def generate(
        self, request: GenerateRequest, context: Context
    ) -> AsyncGenerator[GenerateChunk, None]:
        prompt_tokens = len(request["token_ids"])
        max_tokens = request.get("stop_conditions", {})["max_tokens"]
        for place in range(max_tokens):
            await self._timer.wait_step()
            if context.is_stopped():
                return
            chunk: GenerateChunk = {"token_ids": [FIRST_TOKEN_ID + place], "index": 0}
            if place == max_tokens - 1:
                chunk["finish_reason"] = "length"
                chunk["completion_usage"] = {
                    "prompt_tokens": prompt_tokens,
                    "completion_tokens": max_tokens,
                    "total_tokens": prompt_tokens + max_tokens,
                }
            yield chunk

    async def cleanup(self) -> None:
        """Holds nothing."""


if __name__ == "__main__":
    run(TickEngine)
