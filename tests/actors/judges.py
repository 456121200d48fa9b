"""A judge of requests for an engine of 64 tokens of context and 100 token ids."""

from __future__ import annotations

from typing import Any

from actors.resolving import SpecRules
from protocols.engine import EngineCapabilities, EngineInfo
from protocols.requests import decode_request
from protocols.spec import GenerationSpec
from tests.doubles.callers import wire_request

CONTEXT = 64
VOCAB = 100
ALL_SAMPLING = frozenset(
    {
        "temperature", "top_k", "top_p", "min_p",
        "repetition_penalty", "presence_penalty", "frequency_penalty",
    }
)  # fmt: skip
EVERYTHING = EngineCapabilities(
    can_pause=True, sampling=ALL_SAMPLING, max_n=8, max_logprobs=20, no_prompt_logprobs=""
)
NOTHING = EngineCapabilities()
LARGEST_SEED = 2**64 - 1


def rules(capabilities: EngineCapabilities = EVERYTHING, capacity: int = 8, **info: Any) -> SpecRules:
    facts: dict[str, Any] = {
        "model": "m",
        "context_length": CONTEXT,
        "max_num_seqs": 8,
        "vocab_size": VOCAB,
        **info,
    }
    return SpecRules("double", capabilities, EngineInfo(**facts), capacity, new_seed=lambda: 4711)


def resolve(judge: SpecRules | None = None, /, **options: Any) -> GenerationSpec:
    return (judge or rules()).resolve(decode_request(wire_request(**options)))
