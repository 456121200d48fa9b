"""How requests reach the engine's process and come back."""

from tensorrt_llm.executor.executor import CppExecutorError, GenerationExecutor
from tensorrt_llm.executor.proxy import GenerationExecutorProxy
from tensorrt_llm.executor.request import LoRARequest, PromptAdapterRequest
from tensorrt_llm.executor.result import CompletionOutput, GenerationResult, IterationResult, Logprob
from tensorrt_llm.executor.utils import EngineDeadError, RequestError
from tensorrt_llm.executor.worker import GenerationExecutorWorker

__all__ = [
    "CompletionOutput",
    "CppExecutorError",
    "EngineDeadError",
    "GenerationExecutor",
    "GenerationExecutorProxy",
    "GenerationExecutorWorker",
    "GenerationResult",
    "IterationResult",
    "LoRARequest",
    "Logprob",
    "PromptAdapterRequest",
    "RequestError",
]
