"""Which adapters an engine is prepared for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tensorrt_llm.llmapi.strict_model import StrictBaseModel


class LoraConfig(StrictBaseModel):
    """With exactly one ``lora_dir`` the tokenizer is taken from it, when it has one."""

    lora_dir: list[str] = Field(default_factory=list)
    lora_ckpt_source: Literal["hf", "nemo"] = "hf"
    max_lora_rank: int = 64
    lora_target_modules: list[str] = Field(default_factory=list)
    trtllm_modules_to_hf_modules: dict[str, str] = Field(default_factory=dict)
    max_loras: int | None = None
    max_cpu_loras: int | None = None
    swap_gate_up_proj_lora_b_weight: bool = True
