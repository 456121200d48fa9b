"""Upstream's sample engine, unchanged but for its token ids.

Its own ids begin at 1, and the first of them are special tokens in most vocabularies: they carry no text, so
the client would see its first chunk late. Ours begin at 1000, so these do too. The shift is one more
generator around the engine's own: about 0.2 us of the 60 us and more that a chunk costs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dynamo._core import Context
from dynamo.common.backend.engine import EngineConfig, GenerateChunk
from dynamo.common.backend.run import run
from dynamo.common.backend.sample_engine import SampleLLMEngine
from dynamo.common.backend.worker import WorkerConfig

from actors.engines.synthetic import FIRST_TOKEN_ID
from tests.bench.peers.start import peer_options, worker_config

# The sample engine's first id.
_ITS_FIRST_ID = 1


class ShiftedSampleEngine(SampleLLMEngine):
    """Says 1000, 1001, ... and goes by the name it was given."""

    def __init__(self, name: str, model: str, step_s: float) -> None:
        super().__init__(model_name=model, delay=step_s)
        self._name = name

    async def start(self, worker_id: int) -> EngineConfig:
        config = await super().start(worker_id)
        config.served_model_name = self._name
        return config

    async def _generate_tokens(
        self, prompt_len: int, max_new: int, context: Context, logprobs_k: int | None
    ) -> AsyncGenerator[GenerateChunk, None]:
        async for chunk in super()._generate_tokens(prompt_len, max_new, context, logprobs_k):
            chunk["token_ids"] = [
                token_id + FIRST_TOKEN_ID - _ITS_FIRST_ID for token_id in chunk["token_ids"]
            ]
            yield chunk


async def _from_options(_argv: list[str] | None) -> tuple[ShiftedSampleEngine, WorkerConfig]:
    options = peer_options()
    return ShiftedSampleEngine(options.name, options.model, options.step_s), worker_config(options)


if __name__ == "__main__":
    run(ShiftedSampleEngine, [], _from_options)
