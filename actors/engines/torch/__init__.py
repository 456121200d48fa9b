"""The embedded engine: causal language models of transformers, batched and paged by this package.

Importing this package imports neither torch nor transformers; the engine's thread does that.
Inside it, ``import torch`` always means the library: imports here are absolute.
"""

from actors.engines.torch.config import TorchConfig
from actors.engines.torch.engine import TorchEngine

__all__ = ["TorchConfig", "TorchEngine"]
