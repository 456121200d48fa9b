"""A double of TensorRT-LLM 1.3.0rc22 for tests: its Python API without its kernels."""

from tensorrt_llm.sampling_params import SamplingParams
from tensorrt_llm.version import __version__

__all__ = ["SamplingParams", "__version__"]
