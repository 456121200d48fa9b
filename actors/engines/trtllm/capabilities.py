"""What TensorRT-LLM can do with this configuration, known before anything is loaded."""

from __future__ import annotations

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.constraints.guiding import guided_kinds
from protocols.engine import EngineCapabilities, Figure
from protocols.spec import Sampling, Stage

# OpenAI's limits for choices of a request and for alternatives of a token; some releases of the library
# allow 100 alternatives, of others that is not known.
MOST_CHOICES = 128
MOST_LOGPROBS = 20
# Bytes of a cache salt: with a longer one 1.3.0rc22 makes no request (``GenerationRequest``).
_LONGEST_SALT = 256
# Logits of a prompt whose logprobs are asked for. They lie on the device beside the KV cache's memory: 1 GiB
# in 16 bits, and for a moment 2 GiB each of them in 32 bits and of what becomes of those. Who runs the
# device out of memory fails everybody.
_PROMPT_LOGITS = 2**29
# Entries of a prompt's logprobs in all responses of one request: each repeats all, through the one queue that
# everybody's responses take.
_PROMPT_ENTRIES = 2**22
# Why something is lacking: each names what would change it.
_GREEDY = "TensorRT-LLM makes several greedy ones only where TLLM_ALLOW_N_GREEDY_DECODING is set"
_UNGUIDED = "no guided decoding back-end is configured (--guided-decoding-backend xgrammar or llguidance)"
# A decode worker never sees the prompt's logits, and what a prefill worker says nobody shows.
_SPLIT_PROMPT = "nobody tells logprobs of a prompt where prefill and decode are two workers"
_DRAFTS = "TensorRT-LLM fails on them with speculative decoding (the engine argument speculative_config)"
_NO_ADAPTERS = "no LoRA adapter is configured (lora_config.lora_dir)"
_ONE_BEAM = "one beam is configured (--max-beam-width)"
_NO_TAGS = "the back-end llguidance follows no structural tags (--guided-decoding-backend xgrammar)"
_SPLIT_BEAMS = "a KV cache is handed over for one answer where prefill and decode are two workers"
_NO_PARSER = "no reasoning parser is configured (the engine argument reasoning_parser)"
_NO_TOKENIZER = "its reasoning parser has no tokenizer (the engine argument skip_tokenizer_init)"


def capabilities_of(config: TrtllmConfig) -> EngineCapabilities:
    """Its queue can hold no request back, so that readers' room is reserved for all they may get."""
    is_whole, guided = config.role is Stage.WHOLE, guided_kinds(config.guided_backend)
    return EngineCapabilities(
        sampling=frozenset(Sampling.__struct_fields__),
        max_n=min(MOST_CHOICES, config.batch),
        max_logprobs=MOST_LOGPROBS,
        no_prompt_logprobs=_why_no_prompt_logprobs(config),
        prompt_logprob_tokens=_PROMPT_LOGITS // config.vocab_size,
        prompt_logprob_entries=_PROMPT_ENTRIES,
        guided=guided,
        no_guided=_NO_TAGS if guided else _UNGUIDED,
        guided_backend=config.guided_backend or "",
        processors=frozenset(config.processors),
        role=config.role,
        adapters=frozenset(config.adapters),
        no_adapters=_NO_ADAPTERS,
        max_beams=config.beams if is_whole else 1,
        no_beams=_ONE_BEAM if is_whole else _SPLIT_BEAMS,
        max_best_of=MOST_CHOICES,
        has_conversations=config.has_conversations,
        obeys_ranks=not config.chooses_ranks,
        no_thinking_budget=_why_no_thinking_budget(config),
        no_greedy_choices="" if config.allows_greedy_choices else _GREEDY,
        # With the grammar complete and its end held back nothing could be chosen: the device would fault.
        holds_back_guided=False,
        longest_salt=_LONGEST_SALT,
        untold=_untold(config),
    )


def _untold(config: TrtllmConfig) -> frozenset[Figure]:
    """Its statistics count blocks kept for reuse among the free ones, and pauses in a row of their own."""
    never = frozenset({Figure.CACHED_BLOCKS, Figure.PREEMPTIONS})
    return never if config.has_statistics else never | {Figure.USED_BLOCKS}


def _why_no_prompt_logprobs(config: TrtllmConfig) -> str:
    if config.role is not Stage.WHOLE:
        return _SPLIT_PROMPT
    return _DRAFTS if config.arguments.get("speculative_config") else ""


def _why_no_thinking_budget(config: TrtllmConfig) -> str:
    """A prefill makes no thoughts. Who ends them has to know how a model does it, and to read it."""
    if config.has_thinking_budget or config.role is Stage.PREFILL:
        return ""
    return _NO_TOKENIZER if config.arguments.get("reasoning_parser") else _NO_PARSER
