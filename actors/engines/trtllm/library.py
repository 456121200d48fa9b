"""What is used of the package ``tensorrt_llm``, found once: the only module that imports it.

Importing it takes many seconds and starts MPI, so that is done in the thread that loads the engine.
Names that came or went between 1.3.0rc19 and rc22 are None where the installed release has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Classes of TensorRT-LLM, by their own names; they come without types.

    EngineDeadError, ConversationParams: None in releases that have none yet.
    get_global_disagg_request_id: takes one number up to rc21, two from rc22 on.
    """

    version: str
    LLM: Any
    SamplingParams: Any
    GuidedDecodingParams: Any
    DisaggregatedParams: Any
    SchedulingParams: Any
    LoRARequest: Any
    Logprob: Any
    MetricsCollector: Any
    RequestError: type[Exception]
    EngineDeadError: type[Exception] | None
    ConversationParams: Any
    get_global_disagg_request_id: Any


def import_library() -> Library:
    """The loading thread. Raises ImportError, or what the package raises when it cannot be imported."""
    api = import_module("tensorrt_llm.llmapi")
    utils = import_module("tensorrt_llm.executor.utils")
    return Library(
        version=str(import_module("tensorrt_llm").__version__),
        LLM=api.LLM,
        SamplingParams=api.SamplingParams,
        GuidedDecodingParams=api.GuidedDecodingParams,
        DisaggregatedParams=api.DisaggregatedParams,
        SchedulingParams=import_module("tensorrt_llm.scheduling_params").SchedulingParams,
        LoRARequest=import_module("tensorrt_llm.executor.request").LoRARequest,
        Logprob=import_module("tensorrt_llm.executor.result").Logprob,
        MetricsCollector=import_module("tensorrt_llm.metrics").MetricsCollector,
        RequestError=utils.RequestError,
        EngineDeadError=getattr(utils, "EngineDeadError", None),
        ConversationParams=getattr(api, "ConversationParams", None),
        get_global_disagg_request_id=getattr(
            import_module("tensorrt_llm.llmapi.disagg_utils"), "get_global_disagg_request_id", None
        ),
    )
