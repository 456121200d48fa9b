"""Arguments with a sentence of their own: removed or renamed, or of no use to this worker."""

from __future__ import annotations

from dataclasses import dataclass

from service.options.engine_arguments.value_kinds import as_switch
from service.options.tables.tensorrt import LOAD_FORMATS

_OBJECT = "takes an object of Python code, which neither a file nor a flag can hold; leave it out"
_GRAPHS = "is part of cuda_graph_config now: batch_sizes, max_batch_size, enable_padding"
_TENSORRT_ENGINE = "belonged to the TensorRT engine backend, which TensorRT-LLM 1.3 has no more; leave it out"
_SAMPLER = "is gone: TensorRT-LLM chooses the sampler itself (sampler_type)"

# Of older versions, and of trtllm-serve's flags. Where another version is installed these only warn, like
# every unknown name.
RETIRED: dict[str, str] = {
    "build_config": "is gone with the TensorRT engine backend: write max_batch_size, max_num_tokens, "
    "max_seq_len and max_beam_width without it",
    "pytorch_backend_config": "is gone: write its keys without it",
    "enable_overlap_scheduler": "is now disable_overlap_scheduler, which means the opposite",
    "use_cuda_graph": _GRAPHS + " (null: no graphs)",
    "cuda_graph_batch_sizes": _GRAPHS,
    "cuda_graph_max_batch_size": _GRAPHS,
    "cuda_graph_padding_enabled": _GRAPHS,
    "padding_enabled": _GRAPHS,
    "cuda_graph_config.padding_enabled": "is now enable_padding",
    "kv_cache_dtype": "is now kv_cache_config.dtype",
    "kv_cache_config.kv_cache_dtype": "is dtype here",
    "kv_cache_config.block_size": "is tokens_per_block here",
    "hf_revision": "is revision here; only the file of --extra-engine-args may call it so",
    "disable_flashinfer_sampling": _SAMPLER,
    "kv_cache_free_gpu_memory_fraction": "is kv_cache_config.free_gpu_memory_fraction here",
    **dict.fromkeys(("tp", "tp_size"), "is tensor_parallel_size here"),
    **dict.fromkeys(("pp", "pp_size"), "is pipeline_parallel_size here"),
    **dict.fromkeys(("ep", "ep_size"), "is moe_expert_parallel_size here"),
    "moe_backend": "is now moe_config.backend",
    "moe_max_num_tokens": "is now moe_config.max_num_tokens",
    "moe_load_balancer": "is now moe_config.load_balancer",
    "autotuner_enabled": "is now enable_autotuner",
    "torch_compile_enabled": "is now torch_compile_config (null: not compiled)",
    "torch_compile_fullgraph": "is now torch_compile_config.enable_fullgraph",
    "enable_trtllm_sampler": _SAMPLER,
    "use_torch_sampler": _SAMPLER,
    "mixed_sampler": _SAMPLER,
    "quant_config": "is read from the model's folder by the PyTorch backend; leave it out",
    "calib_config": "is for quantising, which is done before serving; leave it out",
    "enable_build_cache": _TENSORRT_ENGINE,
    "extended_runtime_perf_knob_config": _TENSORRT_ENGINE,
    "batching_type": _TENSORRT_ENGINE,
    "fast_build": _TENSORRT_ENGINE,
    "embedding_parallel_mode": _TENSORRT_ENGINE,
    "auto_parallel": _TENSORRT_ENGINE,
    "enable_prompt_adapter": _TENSORRT_ENGINE,
    "max_prompt_adapter_token": _TENSORRT_ENGINE,
    "normalize_log_probs": _TENSORRT_ENGINE,
    "max_lora_rank": "is now lora_config.max_lora_rank",
    "max_loras": "is now lora_config.max_loras",
    "max_cpu_loras": "is now lora_config.max_cpu_loras",
}


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a value is refused. ``accepts``: values that ask for nothing; texts of them in any case."""

    why: str
    accepts: tuple[object, ...] = (None, False)

    def is_asked_for_by(self, value: object) -> bool:
        """A number is no switch here, and 0 is not false; "false" is, as TensorRT-LLM reads it."""
        is_off = isinstance(value, str) and as_switch(value) is False
        return not any(_is_same(value, each) or (is_off and each is False) for each in self.accepts)


# In every version.
UNUSABLE: dict[str, Unusable] = {
    "backend": Unusable("this worker drives the PyTorch backend only", (None, "pytorch")),
    "load_format": Unusable(
        LOAD_FORMATS,
        # 0 and 1 are the numbers of the two.
        ("auto", "dummy", 0, 1),
    ),
    "encode_only": Unusable("this worker generates tokens; leave it out"),
    "mm_encoder_only": Unusable("this worker generates tokens; leave it out"),
    "post_processor_hook": Unusable("works on text, and this worker serves tokens; leave it out"),
    "kv_cache_config.kv_events_config": Unusable(
        "streams KV events past the worker, which polls them; use --publish-kv-events", ()
    ),
    "mpi_session": Unusable(_OBJECT),
    "_mpi_session": Unusable(_OBJECT),
    "executor_cls": Unusable(_OBJECT),
    "checkpoint_loader": Unusable(_OBJECT),
    "batched_logits_processor": Unusable(_OBJECT),
    "decoding_config": Unusable(_OBJECT),
}

# Taken out with a warning: TensorRT-LLM, or the way this worker uses it, does nothing with them.
WITHOUT_EFFECT: dict[str, str] = {
    "kv_cache_config.sink_token_length": "TensorRT-LLM ignores it",
    "num_postprocess_workers": "this worker serves tokens, which need no post-processing",
    "postprocess_tokenizer_dir": "this worker serves tokens, which need no post-processing",
}

# Passed on with a warning.
UNTRIED: dict[str, str] = {
    "orchestrator_type": "this worker has been run with TensorRT-LLM's own processes only",
    "gather_generation_logits": "on one GPU it puts the engine into this process, which dies with it",
}


def _is_same(value: object, other: object) -> bool:
    if isinstance(value, str) and isinstance(other, str):
        return value.lower() == other.lower()
    return type(value) is type(other) and value == other
