"""What the arguments of TensorRT-LLM may hold, as of one version: a type, bounds and words for each field.

Objects inside of it have their names in `known_fields`. What is not here takes whatever TensorRT-LLM takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from actors.engines.trtllm_facts import MEMORIES, RESTORE_MODES
from service.options.engine_arguments.known_fields import BUCKETS, SECTIONS
from service.options.engine_arguments.value_kinds import (
    Kind,
    ListOf,
    Number,
    Object,
    Rising,
    Switch,
    SwitchOr,
    Text,
    Whole,
    Words,
)


@dataclass(frozen=True, slots=True)
class Field:
    """What one field takes. may_be_null: null is one more, mostly for a default of TensorRT-LLM."""

    kind: Kind
    may_be_null: bool = False

    @property
    def or_null(self) -> Field:
        return replace(self, may_be_null=True)

    @property
    def is_text(self) -> bool:
        """Whether nothing but a text can stand there."""
        return isinstance(self.kind, Text | Words)

    def takes(self, value: object) -> bool:
        return self.may_be_null if value is None else self.kind.takes(value)


def _group(group: str, *rows: tuple[Field, str]) -> dict[str, Field]:
    prefix = f"{group}." if group else ""
    return {f"{prefix}{name}": field for field, names in rows for name in names.split()}


def _words(*words: str) -> Field:
    return Field(Words(words))


_SWITCH, _TEXT, _OBJECT = Field(Switch()), Field(Text()), Field(Object())
_TEXTS_BY_NAME, _TEXTS = Field(Object(of_texts=True)), Field(ListOf(Text(), "texts"))
_WHOLE, _WHOLES = Field(Whole()), Field(ListOf(Whole(), "whole numbers"))
_FROM_0, _FROM_1, _OR_ALL = Field(Whole(0)), Field(Whole(1)), Field(Whole(-1))
_SOME_WHOLES = Field(ListOf(Whole(), "whole numbers", may_be_empty=False))
_SOME_SIZES = Field(ListOf(Whole(1), "whole numbers from 1 up", may_be_empty=False))
_SOME_NUMBERS = Field(ListOf(Number(), "numbers", may_be_empty=False))
_NUMBER, _SHARE = Field(Number()), Field(Number(0, 1))

FIELDS: dict[str, Field] = {
    **_group(
        "",
        (
            _SWITCH,
            "disable_mm_encoder disable_overlap_scheduler enable_attention_dp enable_autotuner "
            "enable_chunked_prefill enable_early_first_token_response enable_energy_metrics "
            "enable_iter_perf_stats enable_iter_req_stats enable_layerwise_nvtx_marker "
            "enable_lm_head_tp_in_adp enable_lora enable_low_latency_host_dispatch enable_min_latency "
            "enable_resource_governor enable_speculative_beam_history_d2h force_dynamic_quantization "
            "gather_generation_logits print_iter_log return_perf_metrics sampler_force_async_worker "
            "skip_tokenizer_init trust_remote_code use_cute_dsl_bf16_bmm use_cute_dsl_bf16_gemm "
            "use_cute_dsl_blockscaling_bmm use_cute_dsl_blockscaling_mm",
        ),
        (
            _WHOLE,
            "context_parallel_size garbage_collection_gen0_threshold pipeline_parallel_size "
            "tensor_parallel_size",
        ),
        (
            _WHOLE.or_null,
            "gpus_per_node max_batch_size max_beam_width max_input_len max_num_tokens max_seq_len "
            "moe_cluster_parallel_size moe_expert_parallel_size moe_tensor_parallel_size",
        ),
        # -1 keeps all of them.
        (_OR_ALL, "max_stats_len"),
        (_OR_ALL.or_null, "iter_stats_max_iterations request_stats_max_iterations"),
        (_FROM_0, "batch_wait_timeout_iters perf_metrics_max_requests"),
        (_FROM_1, "stream_interval"),
        (_FROM_1.or_null, "encoder_max_batch_size encoder_max_num_tokens"),
        (Field(Number(0)), "batch_wait_timeout_ms"),
        (_SHARE, "batch_wait_max_tokens_ratio"),
        (_TEXT, "attn_backend dtype sampler_type"),
        (
            _TEXT.or_null,
            "checkpoint_format custom_tokenizer otlp_traces_endpoint ray_worker_extension_cls "
            "reasoning_parser revision tokenizer_revision",
        ),
        (_words("auto", "slow"), "tokenizer_mode"),
        (_words("xgrammar", "llguidance").or_null, "guided_decoding_backend"),
        (_words("rpc", "ray").or_null, "orchestrator_type"),
        (
            _words(
                *("AUTO", "NCCL", "UB", "MINLATENCY", "ONESHOT", "TWOSHOT", "LOWPRECISION", "MNNVL"),
                "NCCL_SYMMETRIC",
            ).or_null,
            "allreduce_strategy",
        ),
        (_WHOLES.or_null, "pp_partition"),
        (
            _OBJECT,
            "gms_config layer_wise_benchmarks_config moe_config mx_config nvfp4_gemm_config telemetry_config",
        ),
        (
            _OBJECT.or_null,
            "cp_config dwdp_config kv_cache_compression_config model_kwargs multimodal_config "
            "peft_cache_config ray_placement_config reorder_policy_config sparse_attention_config "
            "speculative_config torch_compile_config",
        ),
        (_TEXTS_BY_NAME.or_null, "ray_worker_nsight_options"),
    ),
    **_group(
        "kv_cache_config",
        (
            _SWITCH,
            "copy_on_partial_reuse enable_block_reuse enable_kv_pool_rebalance enable_partial_reuse "
            "enable_swa_scratch_reuse mamba_ssm_stochastic_rounding use_uvm",
        ),
        (Field(SwitchOr("auto")), "use_kv_cache_manager_v2"),
        (_WHOLE, "attention_dp_events_gather_period_ms event_buffer_max_size tokens_per_block"),
        (_WHOLE.or_null, "host_cache_size max_tokens secondary_offload_min_priority"),
        (_FROM_0, "disk_prefetch_num_reqs max_gpu_total_bytes"),
        (_FROM_0.or_null, "disk_cache_size"),
        (_FROM_1, "iteration_stats_interval mamba_ssm_philox_rounds mamba_state_cache_interval"),
        (_FROM_1.or_null, "avg_seq_len"),
        # Null is in the type of the first, and breaks the check that follows.
        (_SHARE, "free_gpu_memory_fraction max_util_for_resume"),
        (_SHARE.or_null, "cross_kv_cache_fraction"),
        (_SOME_WHOLES.or_null, "max_attention_window"),
        (_SOME_NUMBERS.or_null, "pool_ratio"),
        (_TEXT, "dtype"),
        (_TEXT.or_null, "disk_cache_path"),
        (_words("auto", "float16", "bfloat16", "float32"), "mamba_ssm_cache_dtype"),
        (_words("auto", "v1_block_key", "v2_sha256", "v2_sha256_64"), "kv_cache_event_hash_algo"),
        (_words("all_reusable", "per_request"), "block_reuse_policy"),
    ),
    **_group(
        "scheduler_config",
        (_SWITCH, "enable_prefix_aware_scheduling use_python_scheduler"),
        (_words("MAX_UTILIZATION", "GUARANTEED_NO_EVICT", "STATIC_BATCH"), "capacity_scheduler_policy"),
        (
            _words("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS", "FORCE_CHUNK").or_null,
            "context_chunking_policy",
        ),
        (_words("fcfs", "priority"), "waiting_queue_policy"),
    ),
    **_group(
        "scheduler_config.dynamic_batch_config",
        (_SWITCH, "enable_batch_size_tuning enable_max_num_tokens_tuning"),
        (_WHOLE, "dynamic_batch_moving_average_window"),
    ),
    **_group(
        "cache_transceiver_config",
        (_words("DEFAULT", "UCX", "NIXL", "MOONCAKE", "MPI").or_null, "backend"),
        (_words("CPP", "PYTHON", "auto").or_null, "transceiver_runtime"),
        (_WHOLE.or_null, "max_tokens_in_buffer"),
        (
            _FROM_1.or_null,
            "kv_transfer_poll_interval_ms kv_transfer_sender_future_timeout_ms kv_transfer_timeout_ms",
        ),
        (_FROM_0, "kv_cache_bounce_size_mb"),
    ),
    **_group(
        "cuda_graph_config",
        (_WHOLES.or_null, "batch_sizes"),
        (_SOME_SIZES.or_null, "num_tokens seq_lens"),
        (_FROM_0, "max_batch_size max_num_token max_seq_len"),
        (_SWITCH, "enable_padding"),
        (_words("decode", "encode"), "mode"),
    ),
    **_group(
        "attention_dp_config",
        (
            _SWITCH,
            "enable_balance enable_kv_cache_aware_routing kv_cache_routing_account_for_in_transfer "
            "kv_cache_routing_cold_start_warmup kv_cache_routing_conversation_affinity",
        ),
        (_WHOLE, "batching_wait_iters kv_cache_routing_max_sessions timeout_iters"),
        (
            _NUMBER,
            "kv_cache_routing_fair_share_multiplier kv_cache_routing_load_balance_weight "
            "kv_cache_routing_match_rate_threshold",
        ),
    ),
    **_group(
        "kv_connector_config",
        (
            _TEXT.or_null,
            "connector connector_module connector_scheduler_class connector_worker_class server_url",
        ),
    ),
    **_group(
        "lora_config",
        (_TEXTS, "lora_dir lora_target_modules"),
        (_TEXTS_BY_NAME, "trtllm_modules_to_hf_modules"),
        (_words("hf", "nemo"), "lora_ckpt_source"),
        (_WHOLE, "max_lora_rank"),
        (_WHOLE.or_null, "max_cpu_loras max_loras"),
        (_SWITCH, "swap_gate_up_proj_lora_b_weight"),
    ),
    **_group("sleep_config.restore_modes", (_words(*RESTORE_MODES), " ".join(MEMORIES))),
    **_group(BUCKETS, (Field(Rising()).or_null, " ".join(sorted(SECTIONS[BUCKETS].fields)))),
}

# Fields that this worker reads itself, or its driver. Another type would be misread there: a quoted "false"
# is true to Python. So what TensorRT-LLM would read as the type becomes the type (`typed_values`), and all
# else is refused, whatever version is installed.
READ_HERE: dict[str, Kind] = {
    **dict.fromkeys(
        (
            "disable_overlap_scheduler", "enable_attention_dp", "enable_chunked_prefill",
            "enable_iter_perf_stats", "return_perf_metrics", "skip_tokenizer_init", "trust_remote_code",
            "kv_cache_config.enable_block_reuse",
            "attention_dp_config.kv_cache_routing_conversation_affinity",
        ),
        Switch(),
    ),
    **dict.fromkeys(
        (
            "max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width", "gpus_per_node",
            "tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size",
            "kv_cache_config.tokens_per_block", "cache_transceiver_config.kv_transfer_timeout_ms",
        ),
        Whole(1),
    ),
    **dict.fromkeys(("guided_decoding_backend", "reasoning_parser"), Text()),
    **dict.fromkeys((f"{BUCKETS}.{name}" for name in SECTIONS[BUCKETS].fields), Rising()),
    "kv_cache_config.event_buffer_max_size": Whole(0),
    "kv_cache_config.free_gpu_memory_fraction": Number(0, 1),
    "lora_config.lora_dir": ListOf(Text(), "texts"),
}  # fmt: skip
