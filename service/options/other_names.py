"""What other servers call our options: whoever comes from them writes these, and our names are not near."""

from __future__ import annotations

# Without leading dashes, with dashes for underscores -> the flag here. Of trtllm-serve, vLLM and SGLang.
FLAGS: dict[str, str] = {
    "tp": "--tensor-parallel-size",
    "tp-size": "--tensor-parallel-size",
    "pp": "--pipeline-parallel-size",
    "pp-size": "--pipeline-parallel-size",
    "ep": "--expert-parallel-size",
    "ep-size": "--expert-parallel-size",
    "max-model-len": "--max-seq-len",
    "context-length": "--max-seq-len",
    "max-num-batched-tokens": "--max-num-tokens",
    "max-running-requests": "--max-batch-size",
    "block-size": "--kv-block-size",
    "page-size": "--kv-block-size",
    "gpu-memory-utilization": "--free-gpu-memory-fraction",
    "mem-fraction-static": "--free-gpu-memory-fraction",
    "kv-cache-free-gpu-memory-fraction": "--free-gpu-memory-fraction",
    "extra-llm-api-options": "--extra-engine-args",
    "tool-parser": "--dyn-tool-call-parser",
    "tool-call-parser": "--dyn-tool-call-parser",
    "reasoning-parser": "--dyn-reasoning-parser",
    "chat-template": "--custom-jinja-template",
}

_REPLICAS = "start several workers; within one, --enable-attention-dp spreads attention over its ranks"
_QUANTIZED = "leave it out: how a model is quantized stands in its folder"
# The same -> a sentence, where no flag of ours is the same.
SENTENCES: dict[str, str] = {
    "data-parallel-size": _REPLICAS,
    "dp": _REPLICAS,
    "dp-size": _REPLICAS,
    "backend": "leave it out: this worker drives the PyTorch backend only",
    "quantization": _QUANTIZED,
    "enable-lora": "give --trtllm.lora_config.lora_dir and a list of folders, one for each adapter",
    "kv-cache-dtype": "here it is --trtllm.kv_cache_config.dtype",
    "speculative-config": "give its keys as --trtllm.speculative_config.KEY VALUE",
}


def our_flag(word: str) -> str | None:
    """Our flag for a flag or a file's key of theirs; None where no other server has such a name."""
    return FLAGS.get(_plain(word))


def sentence_about(word: str) -> str | None:
    """What to do instead; None where there is nothing to say."""
    return SENTENCES.get(_plain(word))


def _plain(word: str) -> str:
    return word.lower().lstrip("-").replace("_", "-")
