"""Where the library's own command line finds what merges a YAML file into the arguments."""

from tensorrt_llm.bindings.executor import KvCacheRetentionConfig
from tensorrt_llm.llmapi.extra_options import (
    update_llm_args_with_extra_dict,
    update_llm_args_with_extra_options,
)

__all__ = ["KvCacheRetentionConfig", "update_llm_args_with_extra_dict", "update_llm_args_with_extra_options"]
