"""The keys under which a request's numbers are found: these members, never their strings."""

from enum import Enum


class MetricNames(Enum):
    """What is known about a finished request. Times in seconds; the arrival is wall-clock time."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"
    REQUEST_QUEUE_TIME = "request_queue_time"
    ARRIVAL_TIMESTAMP = "arrival_timestamp"
    PREFILL_TIME = "prefill_time"
    DECODE_TIME = "decode_time"
    INFERENCE_TIME = "inference_time"
    PROMPT_TOKENS = "prompt_tokens"
    GENERATION_TOKENS = "generation_tokens"
    PROMPT_CACHE_CACHED_TOKENS = "prompt_cache_cached_tokens"
    SPEC_DEC_ACCEPTED_PER_POS = "spec_dec_accepted_per_pos"
    SPEC_DEC_DRAFTED_PER_POS = "spec_dec_drafted_per_pos"
    PREFILL_PERPLEXITY = "prefill_perplexity"
    GENERATION_PERPLEXITY = "generation_perplexity"


class RequestEventTiming(Enum):
    """Moments that a request's metrics are made from."""

    ARRIVAL_TIME = "arrival_time"
    FIRST_TOKEN_TIME = "first_token_time"
    FIRST_SCHEDULED_TIME = "first_scheduled_time"
    LAST_TOKEN_TIME = "last_token_time"
    KV_CACHE_TRANSFER_START = "kv_cache_transfer_start"
    KV_CACHE_TRANSFER_END = "kv_cache_transfer_end"
    KV_CACHE_SIZE = "kv_cache_size"
