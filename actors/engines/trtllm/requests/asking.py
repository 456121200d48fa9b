"""A spec as the keywords of ``LLM.generate_async``, every object in them made for this call."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.constraints.guiding import guided_params
from actors.engines.trtllm.library import Library
from actors.engines.trtllm.requests.sampling import hold_back, sampling_params
from actors.engines.trtllm.roles.handoffs import context_only, whole
from protocols.errors import EngineStartError
from protocols.spec import GenerationSpec, Stage

# Of its own scale, 0 to 1: what has no priority, and a health probe.
_USUAL, _FIRST = 0.5, 1.0


class Asking:
    """What is the same for all requests of one engine.

    new_id: makes the id of a request in two engines; None for workers that hand nothing over.
    """

    def __init__(self, library: Library, config: TrtllmConfig, new_id: Callable[[], int] | None) -> None:
        self._library = library
        self._config = config
        self._new_id = new_id
        self._adapters = {name: number for number, name in enumerate(sorted(config.adapters), start=1)}

    def keywords(self, spec: GenerationSpec, processor: object = None) -> dict[str, Any]:
        """Only those that say something: positions and names have changed between releases.

        processor: of this request's own logits processors. Raises what the library raises.
        """
        library = self._library
        guided = None if spec.guided is None else guided_params(spec.guided, library)
        found: dict[str, Any] = {
            "inputs": list(spec.prompt),
            "sampling_params": sampling_params(spec, library, guided, self._processors(spec, processor)),
            # Without streaming the answer of a search comes as a whole, which is when it is known.
            "streaming": spec.search is None,
            "disaggregated_params": self._stage(spec),
            "trace_headers": dict(spec.trace_headers) or None,
            "cache_salt": _salt(spec),
            **self._placement(spec),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _placement(self, spec: GenerationSpec) -> dict[str, Any]:
        """Where it runs, with what, and when; objects that only some releases have."""
        library, found = self._library, dict[str, Any]()
        if spec.rank is not None:
            found["scheduling_params"] = library.SchedulingParams(
                attention_dp_rank=spec.rank, attention_dp_relax=False
            )
        if spec.conversation_id is not None:
            found["conversation_params"] = library.ConversationParams(conversation_id=spec.conversation_id)
        if spec.adapter is not None:
            found["lora_request"] = self._adapter(spec.adapter)
        if self._config.is_priority_heeded:
            found["priority"] = priority_of(spec)
        return found

    def _processors(self, spec: GenerationSpec, own: object) -> list[object]:
        """An engine that guesses ahead calls none: there the driver alone sees to late ids."""
        holding = None if self._config.arguments.get("speculative_config") else hold_back(spec)
        return [each for each in (own, holding) if each is not None]

    def _stage(self, spec: GenerationSpec) -> Any:
        """A worker with a part serves whole requests in the words of one."""
        match spec.stage:
            case Stage.DECODE:
                return spec.handoff
            case Stage.PREFILL if self._new_id is not None:
                return context_only(self._library, self._new_id())
            case _:
                return None if self._config.role is Stage.WHOLE else whole(self._library)

    def _adapter(self, name: str) -> Any:
        path = self._config.adapters[name]
        return self._library.LoRARequest(name, self._adapters[name], str(path))


def _salt(spec: GenerationSpec) -> str | None:
    """Of what is found in the cache no logits are computed: whoever wants a prompt's shares with nobody."""
    return spec.cache_salt if spec.output.prompt_logprobs is None else secrets.token_hex(16)


def priority_of(spec: GenerationSpec) -> float:
    """Any number becomes one of the library's, in the same order: 0 is the middle of its scale."""
    if spec.is_probe:
        return _FIRST
    return _USUAL + 0.5 * spec.priority / (1 + abs(spec.priority))


def check_library(library: Library, config: TrtllmConfig) -> None:
    """Raises EngineStartError where the installed release lacks what the configuration needs."""
    if config.has_conversations and library.ConversationParams is None:
        raise EngineStartError(
            f"TensorRT-LLM {library.version} knows no conversations.",
            "Leave --conversation-affinity out, or install 1.3.0rc21 or newer.",
        )
