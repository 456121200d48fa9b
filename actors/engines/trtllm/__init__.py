"""TensorRT-LLM's Python API as an engine.

Importing this package imports neither tensorrt_llm nor torch; the thread that loads the engine does that.
"""

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.engine import TrtllmEngine

__all__ = ["TrtllmConfig", "TrtllmEngine"]
