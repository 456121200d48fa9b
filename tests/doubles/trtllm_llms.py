"""LLMs of the double for its own tests: small folders, scripts, and readers of results.

The package must be on the path (`double_on_path`), so it is imported inside the functions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.doubles.trtllm_site import SCRIPT

if TYPE_CHECKING:
    from tensorrt_llm import LLM, SamplingParams
    from tensorrt_llm.llmapi import RequestOutput

# Of the engine that makes ids up it is never said.
UNUSED_END_ID = 2
# The first id that it makes up.
FIRST_ID = 1000
CONTEXT = 128


def write_folder(folder: Path) -> Path:
    """A model without weights."""
    facts = {"model_type": "llama", "vocab_size": 2000, "max_position_embeddings": CONTEXT, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(facts))
    return folder


@contextmanager
def open_llm(
    model: Path,
    script: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Iterator[LLM]:
    """An LLM that has loaded. Its process is killed at the end, so no trap outlives its test."""
    from tensorrt_llm import LLM

    with changed_environ({SCRIPT: json.dumps(script or {}), "DOUBLE_STEP_MS": "2", **(environ or {})}):
        llm = LLM(**{"model": str(model), "skip_tokenizer_init": True, **arguments})
    try:
        yield llm
    finally:
        executor: Any = llm._executor
        if executor is not None:
            executor._process.kill()
        with suppress(Exception):
            llm.shutdown()


@contextmanager
def changed_environ(changes: Mapping[str, str]) -> Iterator[None]:
    """These variables, for a while."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def params(**options: Any) -> SamplingParams:
    """Fresh options, without detokenizing."""
    from tensorrt_llm import SamplingParams

    return SamplingParams(**{"end_id": UNUSED_END_ID, "detokenize": False, "max_tokens": 5, **options})


def ask(llm: LLM, prompt: list[int], *, streaming: bool = True, **options: Any) -> RequestOutput:
    """One request; keywords that are no options of sampling go to the call."""
    call = {name: options.pop(name) for name in list(options) if name in _OF_THE_CALL}
    return llm.generate_async(inputs=prompt, sampling_params=params(**options), streaming=streaming, **call)


_OF_THE_CALL = frozenset(
    {
        "cache_salt",
        "conversation_params",
        "disaggregated_params",
        "lora_request",
        "priority",
        "scheduling_params",
    }
)


@dataclass
class Read:
    """A result as its consumer saw it, response by response: the ids of each output, and what was raised."""

    result: RequestOutput
    ids: list[list[list[int]]] = field(default_factory=list)
    error: Exception | None = None

    @property
    def tokens(self) -> list[int]:
        """Of the first output, at the end."""
        return list(self.result.outputs[0].token_ids or [])

    @property
    def reasons(self) -> list[str | None]:
        """Of all outputs, at the end."""
        return [output.finish_reason for output in self.result.outputs]


async def read(result: RequestOutput) -> Read:
    """To the end, or to the first error."""
    seen = Read(result)
    try:
        async for each in result:
            seen.ids.append([list(output.token_ids or []) for output in each.outputs])
    except Exception as exc:
        seen.error = exc
    return seen
