"""What older releases do not have, so that a caller who relies on it is found out."""

from __future__ import annotations

import sys

from tensorrt_llm._double.script import Script, read_script
from tensorrt_llm.executor.utils import EngineDeadError

# Where the names stand that the API has only since lately.
_PLACES = {
    "ConversationParams": ("tensorrt_llm", "tensorrt_llm.llmapi", "tensorrt_llm.conversation_params"),
    "EngineDeadError": (
        "tensorrt_llm",
        "tensorrt_llm.llmapi",
        "tensorrt_llm.executor",
        "tensorrt_llm.executor.utils",
    ),
    "get_kv_cache_capacity": ("tensorrt_llm.llmapi.llm:BaseLLM",),
}


def take_names_away() -> None:
    """At the end of the package's import: remove what the script says the release lacks."""
    for name in read_script().lacks:
        for place in _PLACES[name]:
            module, _, owner = place.partition(":")
            found = sys.modules.get(module)
            found = getattr(found, owner) if owner else found
            if found is not None and hasattr(found, name):
                delattr(found, name)


def dead_error(script: Script, cause: BaseException | None) -> RuntimeError:
    """What is raised when the engine is dead: older releases have no error of its own for that."""
    if "EngineDeadError" in script.lacks:
        return RuntimeError("the engine of the double is dead")
    return EngineDeadError(cause)
