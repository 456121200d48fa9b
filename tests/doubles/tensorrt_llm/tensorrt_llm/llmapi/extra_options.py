"""How the library itself merges a YAML file into the keyword arguments of an LLM.

A file wins over what is there, whole keys at a time; only the parts in `MERGED` are merged key by key. Some
dictionaries become objects on the way, so who reads the result must accept both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from tensorrt_llm.llmapi.cache_configs import KvCacheConfig
from tensorrt_llm.llmapi.graph_configs import MultimodalConfig
from tensorrt_llm.llmapi.model_configs import DwdpConfig, MoeConfig, Nvfp4GemmConfig, TelemetryConfig
from tensorrt_llm.llmapi.scheduling_configs import AttentionDpConfig, ReorderRequestPolicyConfig
from tensorrt_llm.lora_helper import LoraConfig

MERGED = ("kv_cache_config", "telemetry_config", "multimodal_config")
# Dictionaries under these keys come out as objects.
OBJECTS: dict[str, type[BaseModel]] = {
    "lora_config": LoraConfig,
    "moe_config": MoeConfig,
    "nvfp4_gemm_config": Nvfp4GemmConfig,
    "attention_dp_config": AttentionDpConfig,
    "reorder_policy_config": ReorderRequestPolicyConfig,
    "kv_cache_config": KvCacheConfig,
    "dwdp_config": DwdpConfig,
    "multimodal_config": MultimodalConfig,
    "telemetry_config": TelemetryConfig,
}
# Flags that stand for one field of the cache's configuration.
_CACHE_FLAGS = {
    "free_gpu_memory_fraction": "free_gpu_memory_fraction",
    "kv_cache_dtype": "dtype",
    "enable_block_reuse": "enable_block_reuse",
}


def update_llm_args_with_extra_dict(
    llm_args: dict[str, Any],
    llm_args_dict: dict[str, Any],
    extra_llm_api_options: str | None = None,
    explicit_cli_keys: set[str] | None = None,
) -> dict[str, Any]:
    """Return both together; the second wins but for the keys that were given as flags.

    extra_llm_api_options: where the second comes from. Raises pydantic's ValidationError for nested keys.
    """
    flags = explicit_cli_keys or set()
    if "hf_revision" in llm_args_dict:
        others = {key: value for key, value in llm_args_dict.items() if key != "hf_revision"}
        llm_args_dict = {"revision": llm_args_dict["hf_revision"], **others}
    given = {
        key: _merged(key, llm_args.get(key), value, flags) if key in MERGED else value
        for key, value in llm_args_dict.items()
        if key not in flags
    }
    objects = {key: OBJECTS[key](**_as_dict(given[key])) for key in OBJECTS.keys() & given.keys()}
    return llm_args | given | objects


def update_llm_args_with_extra_options(
    llm_args: dict[str, Any], extra_llm_api_options: str | None, explicit_cli_keys: set[str] | None = None
) -> dict[str, Any]:
    """As update_llm_args_with_extra_dict, with a YAML file. Raises what reading it raises."""
    if extra_llm_api_options is None:
        return llm_args
    extra = yaml.safe_load(Path(extra_llm_api_options).read_text(encoding="utf-8"))
    return update_llm_args_with_extra_dict(llm_args, extra, extra_llm_api_options, explicit_cli_keys)


def _merged(key: str, base: object, extra: object, flags: set[str]) -> dict[str, Any]:
    before = _as_dict(base)
    merged = before | _as_dict(extra)
    if key == "kv_cache_config":
        kept = (field for flag, field in _CACHE_FLAGS.items() if flag in flags and field in before)
        merged |= {field: before[field] for field in kept}
    return merged


def _as_dict(config: object) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, BaseModel):
        return config.model_dump(exclude_unset=True)
    assert isinstance(config, dict)
    return config
