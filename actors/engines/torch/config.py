"""What an operator decides about the embedded engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from protocols.bounds import OnBound, ignore_bound
from protocols.errors import EngineStartError

DeviceChoice = Literal["auto", "cpu", "cuda"]
# A logits processor from its keyword arguments; `processors` says more, and imports torch.
Factory = Callable[..., Any]
DtypeChoice = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchConfig:
    """Frozen configuration of `TorchEngine`.

    model_path: folder with ``config.json`` and safetensors files.
    device: "auto" takes CUDA where torch sees it. dtype: "auto" is float32 on CPU, bfloat16 on CUDA.
    max_num_seqs: sequences in one batch. step_tokens: decode plus prefill tokens of one step.
    max_seq_len: prompt plus output of one sequence in tokens; None takes what the model was made for.
    kv_block_tokens: tokens of one KV block; with what divides 16, and with multiples of it, a request gets
    the same bits in any batch (other key counts end in other vectors). kv_pool_tokens: size of the KV
    cache; None: by memory.
    memory_gb: GB (10**9 bytes) for weights, KV cache and buffers together; None means what is free.
    threads: of torch's operators; 0 means all cores this process may use.
    is_chunked_prefill: whether a prompt may be computed over several steps.
    processors: factories of logits processors by name.
    on_bound: told when one of the bounds of the engine is reached.
    """

    model_path: Path
    device: DeviceChoice = "auto"
    dtype: DtypeChoice = "auto"
    max_num_seqs: int = 64
    step_tokens: int = 512
    max_seq_len: int | None = None
    kv_block_tokens: int = 16
    kv_pool_tokens: int | None = None
    memory_gb: float | None = None
    threads: int = 0
    trust_remote_code: bool = False
    is_chunked_prefill: bool = True
    processors: Mapping[str, Factory] = field(default_factory=dict[str, Factory])
    on_bound: OnBound = ignore_bound

    def check(self) -> None:
        """Raises EngineStartError for values that no model could run with."""
        at_least_one = ("max_num_seqs", "step_tokens", "kv_block_tokens", "max_seq_len", "kv_pool_tokens")
        for name in at_least_one:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineStartError(f"{name} is {value}.", "It must be at least 1.")
        if self.threads < 0:
            raise EngineStartError(f"threads is {self.threads}.", "It must be 0 (all cores) or more.")
        if self.memory_gb is not None and not self.memory_gb > 0:
            raise EngineStartError(f"memory_gb is {self.memory_gb}.", "It must be above 0.")
        if self.step_tokens <= self.max_num_seqs:
            # Otherwise a full batch of decoding sequences would leave prompts no token, for ever.
            raise EngineStartError(
                f"step_tokens {self.step_tokens} does not exceed max_num_seqs {self.max_num_seqs}.",
                "Raise step_tokens or lower max_num_seqs.",
            )
