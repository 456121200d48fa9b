"""Tiny random models, and what transformers itself says with them.

They are made in the test: nothing is downloaded. Weights are drawn wider than usual, so that the
greedy answer is no repetition of one token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers

# Imported with this module, not in the first test: under a busy machine it takes most of a time limit.
import transformers.models.llama.modeling_llama  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

# These models are too small for two threads to help.
torch.set_num_threads(1)

VOCAB_SIZE = 320
CONTEXT_TOKENS = 256

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT_TOKENS,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
# What makes each kind worth a test: grouped heads, tied output, norms on q and k, softcap, windows, sinks.
_KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32},
    "gemma2": {
        "head_dim": 16,
        "sliding_window": 12,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 5.0,
        "tie_word_embeddings": False,
    },
    "mistral": {"sliding_window": 9},
    "gpt_oss": {"head_dim": 16, "sliding_window": 10, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v3": {
        "kv_lora_rank": 16,
        "q_lora_rank": 24,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "num_key_value_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 32,
    },
    "falcon": {},
    "bloom": {},
    "qwen3_next": {},
    "t5": {},
    "xlstm": {},
    "bert": {"is_decoder": False},
}
RUNS = ("llama", "qwen2", "qwen3", "gemma2", "mistral", "gpt_oss", "deepseek_v3")


def make_config(kind: str, **changes: Any) -> Any:
    """The configuration of a tiny model of this kind."""
    auto: Any = transformers.AutoConfig
    return auto.for_model(kind, **{**_COMMON, **_KINDS[kind], **changes})


def make_model(kind: str, **changes: Any) -> Any:
    """A tiny model with random weights, the same at every call."""
    config = make_config(kind, **changes)
    auto: Any = transformers.AutoModelForCausalLM
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(5)
        model = auto.from_config(config, attn_implementation="eager").eval()
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or name.endswith("sinks"):
                torch.nn.init.normal_(parameter, std=0.12 if parameter.dim() > 1 else 1.0)
            elif "norm" in name:
                torch.nn.init.normal_(parameter, mean=float(parameter.mean()), std=0.1)
    return model


def save(model: Any, folder: Path) -> Path:
    """The model as a folder that the engine loads."""
    model.save_pretrained(folder)
    return folder


@torch.inference_mode()
def greedy(model: Any, prompt: tuple[int, ...], tokens: int) -> list[int]:
    """What transformers' own generate says, one prompt at a time, with its own cache."""
    ids = torch.tensor([prompt])
    answer = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        use_cache=True,
        max_new_tokens=tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    return list(answer[0, len(prompt) :].tolist())


@torch.inference_mode()
def margin(model: Any, tokens: tuple[int, ...]) -> float:
    """By how much the best next token is better than the second best."""
    best = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].topk(2).values
    return float(best[0] - best[1])


def prompts(lengths: tuple[int, ...] = (1, 5, 17, 40, 29, 3)) -> list[tuple[int, ...]]:
    """Prompts of mixed length over the whole vocabulary."""
    return [tuple((31 * i + 7 * length) % VOCAB_SIZE for i in range(length)) for length in lengths]
