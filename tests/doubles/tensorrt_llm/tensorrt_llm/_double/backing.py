"""The engine behind the double: with the model's weights a real one, without them one that makes ids up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorrt_llm._double.processing import NAME, Processing
from tensorrt_llm._double.wire import Settings

if TYPE_CHECKING:
    from protocols.engine import Engine

# Sequences of one batch that a processor computes: more than that wait as they would in the library's queue.
MOST_SEQUENCES = 64
_STEP_TOKENS = 2048
# Of the KV cache of one rank, where nobody says.
_KV_TOKENS = 65_536
# The lowest vocabulary of the engine that makes ids up: it begins at 1000.
_LEAST_VOCABULARY = 1100


def backing_of(settings: Settings, processing: Processing) -> Engine:
    """One for each rank, so that a cache belongs to its rank."""
    folder = Path(settings.model)
    if any(folder.glob("*.safetensors")):
        return _with_model(folder, settings, min(settings.max_batch_size, MOST_SEQUENCES), processing)
    from actors.engines.synthetic import SyntheticConfig, SyntheticEngine

    facts: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return SyntheticEngine(
        SyntheticConfig(
            model=settings.model,
            context_length=settings.max_seq_len or facts.get("max_position_embeddings", 2048),
            max_num_seqs=settings.max_batch_size,
            vocab_size=max(facts.get("vocab_size", 32_000), _LEAST_VOCABULARY),
            step_ms=settings.step_ms,
        )
    )


def _with_model(folder: Path, settings: Settings, sequences: int, processing: Processing) -> Engine:
    from actors.engines.torch import TorchConfig, TorchEngine

    facts: dict[str, Any] = json.loads((folder / "config.json").read_text())
    longest = settings.max_seq_len or facts["max_position_embeddings"]
    return TorchEngine(
        TorchConfig(
            model_path=folder,
            device="cpu",
            max_num_seqs=sequences,
            step_tokens=max(min(settings.max_num_tokens, _STEP_TOKENS), sequences + 1),
            max_seq_len=settings.max_seq_len,
            kv_block_tokens=settings.block_tokens,
            kv_pool_tokens=settings.kv_tokens
            or max(longest + settings.block_tokens, min(_KV_TOKENS, sequences * longest)),
            threads=1,
            processors={NAME: processing.make},
        )
    )
