"""What TensorRT-LLM can do with this configuration, known before anything is loaded."""

from __future__ import annotations

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.guiding import guided_kinds
from protocols.engine import EngineCapabilities
from protocols.spec import Sampling, Stage

# OpenAI's limits for choices of a request and for alternatives of a token; some releases of the library
# allow 100 alternatives, of others that is not known.
MOST_CHOICES = 128
MOST_LOGPROBS = 20
_GREEDY = "TensorRT-LLM makes several greedy ones only where TLLM_ALLOW_N_GREEDY_DECODING is set"
_UNGUIDED = "no guided decoding back-end is configured (--guided-decoding-backend xgrammar or llguidance)"


def capabilities_of(config: TrtllmConfig) -> EngineCapabilities:
    """Its queue cannot hold a request back, so that readers' room is reserved for all they may get."""
    guided = guided_kinds(config.guided_backend)
    return EngineCapabilities(
        can_pause=False,
        sampling=frozenset(Sampling.__struct_fields__),
        max_n=min(MOST_CHOICES, config.batch),
        max_logprobs=MOST_LOGPROBS,
        # A decode worker never sees the prompt's logits, and what a prefill worker says nobody shows.
        has_prompt_logprobs=config.role is Stage.WHOLE,
        guided=guided,
        processors=frozenset(config.processors),
        role=config.role,
        adapters=frozenset(config.adapters),
        max_beams=config.beams,
        max_best_of=MOST_CHOICES,
        has_conversations=config.has_conversations,
        obeys_ranks=not config.chooses_ranks,
        # A prefill makes no thoughts.
        has_thinking_budget=config.has_thinking_budget or config.role is Stage.PREFILL,
        greedy_choices="" if config.allows_greedy_choices else _GREEDY,
        unguided="" if guided else _UNGUIDED,
        # With the grammar complete and its end held back nothing could be chosen: the device would fault.
        holds_back_guided=False,
    )
