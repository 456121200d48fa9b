"""One contestant of the engine's benchmark in a process of its own: a line of JSON in, a line of JSON out.

``python -m tests.bench.torch_child KIND MODEL_FOLDER THREADS POOL_TOKENS``. Contestants that share a
process disturb each other even while they rest: every thread that calls torch has its own team of threads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers

from actors.engines.torch import TorchConfig, TorchEngine
from tests.bench.torch_peers import Continuous, Generate, OurEngine, Peer

PAGE_TOKENS = 256
OURS, GENERATE, CONTINUOUS = "this engine", "generate", "continuous batching"
_logging: Any = transformers.logging


async def serve(kind: str, folder: Path, threads: int, pool_tokens: int) -> None:
    """Until standard input ends. The first line out says what was loaded."""
    _logging.set_verbosity_error()
    _logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    peer, description = await _open(kind, folder, threads, pool_tokens)
    print(json.dumps(description), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        run = await peer.run(asked["prompts"], asked["tokens"], asked["salt"])
        print(json.dumps(asdict(run)), flush=True)


async def _open(kind: str, folder: Path, threads: int, pool_tokens: int) -> tuple[Peer, str]:
    if kind == OURS:
        engine = TorchEngine(TorchConfig(model_path=folder, kv_pool_tokens=pool_tokens, threads=threads))
        return OurEngine(engine), (await engine.start()).description
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_pretrained(folder, dtype=torch.float32).eval()
    if kind == GENERATE:
        return Generate(model), "transformers"
    return Continuous(model, pool_tokens, PAGE_TOKENS), "transformers"


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
