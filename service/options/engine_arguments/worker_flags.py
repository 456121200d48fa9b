"""The worker's own options as arguments of TensorRT-LLM: their defaults, and those that were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.spec import Stage
from service.options.engine_arguments.tree import Leaf, Tree, branch, merge

if TYPE_CHECKING:
    from service.options.engine_arguments.role import Publishing
    from service.options.resolve import Resolution

# Option -> where its value goes. None as a value leaves TensorRT-LLM's own default.
PATHS: dict[str, str] = {
    "model": "model",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "expert_parallel_size": "moe_expert_parallel_size",
    "enable_attention_dp": "enable_attention_dp",
    "gpus_per_node": "gpus_per_node",
    "max_batch_size": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
    "max_seq_len": "max_seq_len",
    "max_beam_width": "max_beam_width",
    "load_format": "load_format",
    "guided_decoding_backend": "guided_decoding_backend",
    "trust_remote_code": "trust_remote_code",
    "kv_block_size": "kv_cache_config.tokens_per_block",
    "free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
}
AFFINITY = "attention_dp_config.kv_cache_routing_conversation_affinity"
EVENT_BUFFER = "kv_cache_config.event_buffer_max_size"
PARTIAL_REUSE = "kv_cache_config.enable_partial_reuse"
TRANSCEIVER = "cache_transceiver_config.backend"
TRANSFER_TIME = "cache_transceiver_config.kv_transfer_timeout_ms"

# Events that may wait for their poll.
EVENT_BUFFER_EVENTS = 100_000
# Upstream's own connector; its classes live in the package kvbm.
_KVBM = {
    "connector_module": "kvbm.trtllm_integration.connector",
    "connector_scheduler_class": "DynamoKVBMConnectorLeader",
    "connector_worker_class": "DynamoKVBMConnectorWorker",
}


def defaults(resolution: Resolution, role: Stage, publishing: Publishing) -> Tree:
    """The weakest layer: what nobody has to give."""
    # The frontend has the tokenizer; the engine works on token ids.
    tree: Tree = {"skip_tokenizer_init": Leaf(True)}
    for option, path in PATHS.items():
        if not resolution[option].is_given:
            tree = _with(tree, path, resolution[option].value)
    if role is not Stage.WHOLE:
        tree = _with(tree, TRANSCEIVER, "UCX")
    if publishing.has_kv_events and role is not Stage.DECODE:
        tree = _with(tree, EVENT_BUFFER, EVENT_BUFFER_EVENTS)
    if publishing.has_kv_events or publishing.has_metrics:
        tree = _with(tree, "enable_iter_perf_stats", True)
    if publishing.has_metrics:
        tree = _with(tree, "return_perf_metrics", True)
    return tree


def given(resolution: Resolution) -> Tree:
    """What flags, variables and the ``--config`` file say in the worker's own words."""
    tree: Tree = {}
    for option, path in PATHS.items():
        if resolution[option].is_given:
            tree = _with(tree, path, resolution[option].value, resolution[option].where)
    affinity = resolution["conversation_affinity"]
    if affinity.is_given:
        tree = _with(tree, AFFINITY, affinity.value, affinity.where)
    return merge(tree, _connector(resolution), [])


def _connector(resolution: Resolution) -> Tree:
    """``kvbm`` sets TensorRT-LLM's connector; ``none`` takes away one that a file sets."""
    found = resolution["connector"]
    if not found.is_given or not found.value:
        return {}
    if found.value != ("kvbm",):
        return {"kv_connector_config": Leaf(None, found.where)}
    # In one piece: half of another connector must not stay in it.
    whole: Tree = {"kv_connector_config": Leaf(_KVBM, found.where)}
    return merge(whole, branch(PARTIAL_REUSE, Leaf(False, found.where)), [])


def _with(tree: Tree, path: str, value: object, where: str = "") -> Tree:
    if value is None:
        return tree
    return merge(tree, branch(path, Leaf(value, where)), [])
