"""Which class of TensorRT-LLM has the fields of which group of arguments."""

from __future__ import annotations

CLASSES = {
    "kv_cache_config": "KvCacheConfig",
    "scheduler_config": "SchedulerConfig",
    "scheduler_config.dynamic_batch_config": "DynamicBatchConfig",
    "cache_transceiver_config": "CacheTransceiverConfig",
    "cuda_graph_config": "CudaGraphConfig",
    "attention_dp_config": "AttentionDpConfig",
    "kv_connector_config": "KvCacheConnectorConfig",
    "lora_config": "LoraConfig",
    "sleep_config": "SleepConfig",
}
