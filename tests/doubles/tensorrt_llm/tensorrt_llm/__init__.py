"""A double of TensorRT-LLM 1.3.0rc22 for tests: its Python API without its kernels."""

from tensorrt_llm.llmapi import LLM, ConversationParams, EngineDeadError, RequestOutput, SamplingParams
from tensorrt_llm.version import __version__

__all__ = ["LLM", "ConversationParams", "EngineDeadError", "RequestOutput", "SamplingParams", "__version__"]


def _become_an_older_release() -> None:
    """Lose the names that the script's release does not have; what needs them is loaded by now."""
    from tensorrt_llm._double.old_shapes import take_names_away

    take_names_away()


_become_an_older_release()
