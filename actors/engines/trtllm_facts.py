"""What TensorRT-LLM 1.3.0rc22 does when it is told nothing, and words it knows.

Beside the driver and not in it: options are checked long before a driver is chosen, and must not import one.
"""

from __future__ import annotations

# Sequences and tokens of one step of one rank, tokens of a KV block.
MAX_BATCH_SIZE, MAX_NUM_TOKENS, TOKENS_PER_BLOCK = 2048, 8192, 32
# How long the KV cache of a prefill is kept for its decode worker, in milliseconds.
KV_TRANSFER_MS = 60_000

KV_CACHE = "kv_cache"
# The values of its `ExecutorMemoryType`: what an operator wants first.
MEMORIES = (
    KV_CACHE, "model_weights", "draft_model_weights", "model", "draft_model", "model_extra", "executor_extra",
    "sampler", "drafter", "guided_decoder", "spec_resource_manager", "_no_capture_init_kv_cache",
    "_no_capture_init_extra_resources",
)  # fmt: skip
# Names of its `RestoreMode`: what becomes of a memory's content in a sleep.
RESTORE_MODES = ("NONE", "MEMSET", "CPU", "PINNED")
