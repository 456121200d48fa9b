"""How requests reach the engine's process and come back."""

from tensorrt_llm.executor.request import LoRARequest, PromptAdapterRequest

__all__ = ["LoRARequest", "PromptAdapterRequest"]
