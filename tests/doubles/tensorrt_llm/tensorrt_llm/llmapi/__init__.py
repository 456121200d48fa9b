"""The public names of the LLM API."""

from tensorrt_llm.conversation_params import ConversationParams
from tensorrt_llm.disaggregated_params import DisaggregatedParams, DisaggScheduleStyle
from tensorrt_llm.executor.outputs import CompletionOutput
from tensorrt_llm.executor.utils import RequestError
from tensorrt_llm.sampling_params import GuidedDecodingParams, SamplingParams
from tensorrt_llm.scheduling_params import SchedulingParams

__all__ = [
    "CompletionOutput",
    "ConversationParams",
    "DisaggScheduleStyle",
    "DisaggregatedParams",
    "GuidedDecodingParams",
    "RequestError",
    "SamplingParams",
    "SchedulingParams",
]
