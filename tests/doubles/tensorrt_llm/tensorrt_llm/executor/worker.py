"""The executor whose engine runs in the caller's process: the double knows when it would be chosen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from tensorrt_llm._double.wire import Settings

if TYPE_CHECKING:
    from tensorrt_llm.llmapi.llm_args import TorchLlmArgs

__all__ = ["GenerationExecutorWorker"]


def is_single_process(args: TorchLlmArgs) -> bool:
    """Whether the library would run the engine inside the caller's process."""
    is_wanted = args.gather_generation_logits or os.environ.get("TLLM_WORKER_USE_SINGLE_PROCESS") == "1"
    world = args.tensor_parallel_size * args.pipeline_parallel_size * args.context_parallel_size
    return world == 1 and bool(is_wanted)


class GenerationExecutorWorker:
    """Not there: whoever ends up here runs in a way that the service does not mean to."""

    def __new__(cls, _settings: Settings) -> NoReturn:
        raise RuntimeError("the double has no engine in the caller's process")
