"""The arguments of TensorRT-LLM's `LLM`, out of everything an operator may have written. See `arguments`."""

from __future__ import annotations

from service.options.engine_arguments.arguments import EngineArguments, engine_arguments
from service.options.engine_arguments.role import Publishing, publishing_of, role_of

__all__ = ["EngineArguments", "Publishing", "engine_arguments", "publishing_of", "role_of"]
