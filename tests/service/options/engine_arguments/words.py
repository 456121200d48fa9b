"""What the tests of TensorRT-LLM's arguments start from: words, and the arguments that come of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.service.options.world import load

if TYPE_CHECKING:
    from service.options import FrameworkFacts
    from service.options.engine_arguments import EngineArguments

TRTLLM = ("--engine", "trtllm")
PREFILL = ("--disaggregation-mode", "prefill")
DECODE = ("--disaggregation-mode", "decode")


def arguments_of(
    *words: str, env: dict[str, str] | None = None, facts: FrameworkFacts | None = None
) -> EngineArguments:
    """The arguments that these words lead to."""
    found = load(*TRTLLM, *words, env=env, facts=facts).engine_arguments
    assert found is not None
    return found


def override(**values: object) -> str:
    """The flag that gives these arguments."""
    return f"--override-engine-args={json.dumps(values)}"


def with_value(path: str, value: object) -> str:
    """The same for one argument by its dotted path."""
    first, _, rest = path.partition(".")
    document = value
    for key in reversed(rest.split(".") if rest else []):
        document = {key: document}
    return override(**{first: document})
