"""Engine `trtllm` from the settings: its arguments were put together, and checked, by the options."""

from __future__ import annotations

import os

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from protocols.spec import Stage
from service.engine_needs import EngineNeeds
from service.models import ModelInvalid, ResolvedModel
from service.models.facts import ModelFacts
from service.options.engine_arguments import EngineArguments
from service.options.settings import Settings

# The library reads it whenever it makes the options of a request; any text counts.
_GREEDY_VARIABLE = "TLLM_ALLOW_N_GREEDY_DECODING"
# Seeds of Python's hashes, which name KV blocks; all ranks of an engine must have the same.
_HASH_SEED = "PYTHONHASHSEED"


def build_trtllm(settings: Settings, needs: EngineNeeds) -> TrtllmEngine:
    """Raises ModelInvalid where the model's configuration lacks what it must say, or is of a wrong kind."""
    arguments = settings.engine_arguments
    if arguments is None:
        raise ValueError("the settings are not those of engine trtllm")
    os.environ.setdefault(_HASH_SEED, "0")
    return TrtllmEngine(_config(settings, arguments, needs), needs.progress)


def _config(settings: Settings, arguments: EngineArguments, needs: EngineNeeds) -> TrtllmConfig:
    model, runtime = needs.model, settings.runtime
    facts = ModelFacts.read(model.path)
    if facts.is_encoder_decoder:
        why = "it is an encoder-decoder model, whose prompts are no beginning of their answers"
        raise ModelInvalid(str(model.path), why, "Serve a model that goes on with its prompt.")
    return TrtllmConfig(
        model_path=model.path,
        vocab_size=facts.vocab_size,
        context_length=_context_length(arguments, facts, model),
        bos_token_id=facts.bos_token_id,
        arguments=arguments.besides_model,
        role=runtime.role,
        allows_greedy_choices=bool(os.environ.get(_GREEDY_VARIABLE)),
        chooses_ranks=arguments.chooses_ranks,
        processors=needs.processors,
        # Routers look for blocks where prompts are computed.
        publishes_kv_events=runtime.publishes_kv_events and runtime.role is not Stage.DECODE,
        metrics_model=_served_name(settings, model) if runtime.publishes_engine_metrics else None,
        on_bound=needs.on_bound,
    )


def _context_length(arguments: EngineArguments, facts: ModelFacts, model: ResolvedModel) -> int:
    """Where the engine does not say its own."""
    length = arguments.max_seq_len or facts.context_length
    if length is None:
        raise ModelInvalid(str(model.path), "config.json says no context length", "Give --max-seq-len.")
    return length


def _served_name(settings: Settings, model: ResolvedModel) -> str:
    return settings.model.served_model_name or model.served_name
