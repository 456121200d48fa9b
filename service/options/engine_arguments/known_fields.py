"""The names TensorRT-LLM's arguments may have, as of one version.

LLM_FIELDS: fields of its argument object. SECTIONS: those of the objects inside it, by dotted path. What is
not listed there, or listed as open, takes whatever TensorRT-LLM takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.engines.trtllm_facts import MEMORIES
from service.options.known_names import TENSORRT_ARGUMENTS

# What was read; another version may know other names.
VERSION = "1.3.0rc22"

LLM_FIELDS = TENSORRT_ARGUMENTS

# Environment variables for the engine's processes.
VARIABLES = "env_overrides"
# Bounds of the histograms of TensorRT-LLM's own metrics, in seconds.
BUCKETS = "prometheus_metrics_config"
_GRAPHS, _MODES = "cuda_graph_config", "sleep_config.restore_modes"
# Of graphs of encoders, which this worker does not drive: known, but not what a misplaced name means.
OF_ENCODERS = frozenset({"num_tokens", "max_num_token", "seq_lens", "max_seq_len"})


@dataclass(frozen=True, slots=True)
class Section:
    """An object of arguments. may_be_null: null means none of it.

    is_open: not read at this very version, so that there may be other fields: those are only warned about.
    """

    fields: frozenset[str]
    may_be_null: bool = True
    is_open: bool = False


def _section(words: str, *, may_be_null: bool = True, is_open: bool = False) -> Section:
    return Section(frozenset(words.split()), may_be_null, is_open)


SECTIONS: dict[str, Section] = {
    "kv_cache_config": _section(
        "attention_dp_events_gather_period_ms avg_seq_len block_reuse_policy copy_on_partial_reuse "
        "cross_kv_cache_fraction disk_cache_path disk_cache_size disk_prefetch_num_reqs dtype "
        "enable_block_reuse enable_kv_pool_rebalance enable_partial_reuse enable_swa_scratch_reuse "
        "event_buffer_max_size free_gpu_memory_fraction host_cache_size iteration_stats_interval "
        "kv_cache_event_hash_algo mamba_ssm_cache_dtype mamba_ssm_philox_rounds "
        "mamba_ssm_stochastic_rounding mamba_state_cache_interval max_attention_window "
        "max_gpu_total_bytes max_tokens max_util_for_resume pool_ratio secondary_offload_min_priority "
        "sink_token_length tokens_per_block use_kv_cache_manager_v2 use_uvm",
        may_be_null=False,
    ),
    "scheduler_config": _section(
        "capacity_scheduler_policy context_chunking_policy dynamic_batch_config "
        "enable_prefix_aware_scheduling use_python_scheduler waiting_queue_policy",
        may_be_null=False,
    ),
    "scheduler_config.dynamic_batch_config": _section(
        "dynamic_batch_moving_average_window enable_batch_size_tuning enable_max_num_tokens_tuning"
    ),
    "cache_transceiver_config": _section(
        "backend kv_cache_bounce_size_mb kv_transfer_poll_interval_ms "
        "kv_transfer_sender_future_timeout_ms kv_transfer_timeout_ms max_tokens_in_buffer "
        "transceiver_runtime"
    ),
    _GRAPHS: Section(frozenset({"batch_sizes", "enable_padding", "max_batch_size", "mode"}) | OF_ENCODERS),
    "attention_dp_config": _section(
        "batching_wait_iters enable_balance enable_kv_cache_aware_routing "
        "kv_cache_routing_account_for_in_transfer kv_cache_routing_cold_start_warmup "
        "kv_cache_routing_conversation_affinity kv_cache_routing_fair_share_multiplier "
        "kv_cache_routing_load_balance_weight kv_cache_routing_match_rate_threshold "
        "kv_cache_routing_max_sessions timeout_iters"
    ),
    "kv_connector_config": _section(
        "connector connector_module connector_scheduler_class connector_worker_class server_url"
    ),
    "lora_config": _section(
        "lora_ckpt_source lora_dir lora_target_modules max_cpu_loras max_lora_rank max_loras "
        "swap_gate_up_proj_lora_b_weight trtllm_modules_to_hf_modules",
        is_open=True,
    ),
    "sleep_config": _section("restore_modes"),
    _MODES: Section(frozenset(MEMORIES), may_be_null=False),
    BUCKETS: _section(
        "e2e_request_latency_buckets request_decode_time_buckets request_inference_time_buckets "
        "request_prefill_time_buckets request_queue_time_buckets time_per_output_token_buckets "
        "time_to_first_token_buckets"
    ),
}


def places_of(name: str) -> list[str]:
    """Every dotted path at which this name is known, the shortest first. Memories are no settings."""
    found = [name] if name in LLM_FIELDS else []
    elsewhere = {_MODES, _GRAPHS} if name in OF_ENCODERS else {_MODES}
    inner = (path for path, section in SECTIONS.items() if name in section.fields and path not in elsewhere)
    return [*found, *(f"{path}.{name}" for path in inner)]
