"""The collector's metrics, each with the key of the row or dictionary that it is made from.

All names are without the prefix ``trtllm_``; Prometheus adds ``_total`` to a counter by itself.
"""

from __future__ import annotations

from tensorrt_llm.metrics.enums import MetricNames

# Histogram -> what is observed for each finished request. Only the first table's can have own buckets.
REQUEST_HISTOGRAMS = {
    "e2e_request_latency_seconds": MetricNames.E2E,
    "time_to_first_token_seconds": MetricNames.TTFT,
    "time_per_output_token_seconds": MetricNames.TPOT,
    "request_queue_time_seconds": MetricNames.REQUEST_QUEUE_TIME,
    "request_prefill_time_seconds": MetricNames.PREFILL_TIME,
    "request_decode_time_seconds": MetricNames.DECODE_TIME,
    "request_inference_time_seconds": MetricNames.INFERENCE_TIME,
}
OTHER_REQUEST_HISTOGRAMS = {
    "prompt_cached_tokens_per_request": MetricNames.PROMPT_CACHE_CACHED_TOKENS,
    "prefill_perplexity": MetricNames.PREFILL_PERPLEXITY,
    "generation_perplexity": MetricNames.GENERATION_PERPLEXITY,
}
REQUEST_COUNTERS = {
    "prompt_tokens": MetricNames.PROMPT_TOKENS,
    "generation_tokens": MetricNames.GENERATION_TOKENS,
    "prompt_cached_tokens": MetricNames.PROMPT_CACHE_CACHED_TOKENS,
}
POSITION_COUNTERS = {
    "spec_decode_drafted_tokens": MetricNames.SPEC_DEC_DRAFTED_PER_POS,
    "spec_decode_accepted_tokens": MetricNames.SPEC_DEC_ACCEPTED_PER_POS,
}

# Part of a row (empty: the row itself) -> gauge -> key.
ROW_GAUGES = {
    "": {
        "num_requests_running": "numActiveRequests",
        "num_requests_waiting": "numQueuedRequests",
        "max_num_active_requests": "maxNumActiveRequests",
        "gpu_memory_usage_bytes": "gpuMemUsage",
        "cpu_memory_usage_bytes": "cpuMemUsage",
        "pinned_memory_usage_bytes": "pinnedMemUsage",
        "max_batch_size_static": "maxBatchSizeStatic",
        "max_batch_size_runtime": "maxBatchSizeRuntime",
        "max_num_tokens_runtime": "maxNumTokensRuntime",
    },
    "kvCacheStats": {
        "kv_cache_hit_rate": "cacheHitRate",
        "kv_cache_max_blocks": "maxNumBlocks",
        "kv_cache_free_blocks": "freeNumBlocks",
        "kv_cache_used_blocks": "usedNumBlocks",
        "kv_cache_tokens_per_block": "tokensPerBlock",
    },
    "inflightBatchingStats": {
        "num_context_requests": "numContextRequests",
        "num_generation_requests": "numGenRequests",
        "num_paused_requests": "numPausedRequests",
        "num_scheduled_requests": "numScheduledRequests",
        "total_context_tokens": "numCtxTokens",
        "avg_decoded_tokens_per_iter": "avgNumDecodedTokensPerIter",
    },
    "specDecodingStats": {
        "spec_decode_acceptance_length": "acceptanceLength",
        "spec_decode_draft_overhead": "draftOverhead",
    },
}
# Made from two numbers, or in other units.
OTHER_GAUGES = (
    *("kv_cache_utilization", "kv_cache_host_utilization", "kv_cache_iter_reuse_rate"),
    *("iteration_latency_seconds", "prefill_batch_occupancy"),
)
# Part of a row -> counter -> key whose value is added.
ROW_COUNTERS = {
    "": {"num_requests_completed": "numCompletedRequests"},
    "specDecodingStats": {
        "spec_decode_num_draft_tokens": "numDraftTokens",
        "spec_decode_num_accepted_tokens": "numAcceptedTokens",
    },
}
# Counter -> key of a cumulative number, of which the difference to the row before is added.
CUMULATIVE_COUNTERS = {"kv_cache_reused_blocks": "reusedBlocks", "kv_cache_missed_blocks": "missedBlocks"}
# Counter -> key that is summed over the windows of ``kvCacheIterationStats``.
WINDOW_COUNTERS = {
    "kv_cache_iter_reused_blocks": "iterReusedBlocks",
    "kv_cache_iter_full_reused_blocks": "iterFullReusedBlocks",
    "kv_cache_iter_partial_reused_blocks": "iterPartialReusedBlocks",
    "kv_cache_iter_missed_blocks": "iterMissedBlocks",
    "kv_cache_gen_alloc_blocks": "iterGenAllocBlocks",
    "kv_cache_onboard_bytes": "iterOnboardBytes",
    "kv_cache_offload_bytes": "iterOffloadBytes",
    "kv_cache_intra_device_copy_bytes": "iterIntraDeviceCopyBytes",
}
EXPERT_GAUGES = ("ep_active_ranks", "ep_failed_ranks", "ep_health_generation", "ep_health_available")
EXPERT_RANK_GAUGE = "ep_rank_active"
CONFIG_GAUGES = ("model_config", "parallel_config", "speculative_config", "kv_cache_config")
