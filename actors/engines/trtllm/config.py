"""What an operator decides about TensorRT-LLM, and what follows from it before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from actors.engines.trtllm_adapters import NamedAlike, adapters_by_name
from actors.engines.trtllm_facts import KV_TRANSFER_MS, MAX_BATCH_SIZE, MAX_NUM_TOKENS, TOKENS_PER_BLOCK
from protocols.bounds import OnBound, ignore_bound
from protocols.errors import EngineStartError
from protocols.spec import Stage

Factory = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmConfig:
    """Frozen configuration of `TrtllmEngine`.

    model_path: folder of the model. arguments: keywords of ``LLM`` besides the model, checked and merged;
    their parts are plain values, mappings, or TensorRT-LLM's own configuration objects.
    role: what of a request this worker does. vocab_size, context_length: of the model's configuration; the
    second is used where the engine does not say its own. bos_token_id: begins a health check.
    allows_greedy_choices: whether TLLM_ALLOW_N_GREEDY_DECODING is set. chooses_ranks: conversations meet the
    rank that the engine chose first, not the router's.
    processors: factories of logits processors by name, picklable.
    metrics_model: label of TensorRT-LLM's own metrics; None: they are not published.
    on_bound: told when one of the bounds of the engine is reached.
    """

    model_path: Path
    vocab_size: int
    context_length: int
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    role: Stage = Stage.WHOLE
    bos_token_id: int = 1
    allows_greedy_choices: bool = False
    chooses_ranks: bool = True
    processors: Mapping[str, Factory] = field(default_factory=dict[str, Factory])
    publishes_kv_events: bool = False
    metrics_model: str | None = None
    on_bound: OnBound = ignore_bound

    def part(self, group: str, name: str, default: Any = None) -> Any:
        """One value of a group of arguments, be it a mapping or an object."""
        return part_of(self.arguments, group, name, default)

    @property
    def keywords(self) -> Mapping[str, Any]:
        """Of ``LLM`` besides the model. With one adapter the library would take its tokenizer for all."""
        has_none = bool(self.arguments.get("skip_tokenizer_init", False))
        if has_none or self.arguments.get("tokenizer") is not None or len(self.adapters) != 1:
            return self.arguments
        return {**self.arguments, "tokenizer": str(self.model_path)}

    @property
    def batch(self) -> int:
        """Sequences that one rank runs at once."""
        return int(self.arguments.get("max_batch_size") or MAX_BATCH_SIZE)

    @property
    def step_tokens(self) -> int:
        """Tokens of one step."""
        return int(self.arguments.get("max_num_tokens") or MAX_NUM_TOKENS)

    @property
    def ranks(self) -> int:
        """Attention-DP ranks: places that a router can choose from."""
        is_split = bool(self.arguments.get("enable_attention_dp"))
        return int(self.arguments.get("tensor_parallel_size") or 1) if is_split else 1

    @property
    def prompt_shares(self) -> int:
        """Context-parallel ranks: each takes its share of a prompt, and a share has to fit into a step."""
        return int(self.arguments.get("context_parallel_size") or 1)

    @property
    def block_tokens(self) -> int:
        """Tokens of one KV block."""
        return int(self.part("kv_cache_config", "tokens_per_block", TOKENS_PER_BLOCK))

    @property
    def beams(self) -> int:
        """Most beams of a search."""
        return int(self.arguments.get("max_beam_width") or 1)

    @property
    def guided_backend(self) -> str | None:
        """What obeys constraints."""
        backend = self.arguments.get("guided_decoding_backend")
        return None if backend is None else str(backend)

    @property
    def has_conversations(self) -> bool:
        """Whether the engine keeps a conversation on one rank."""
        return bool(self.part("attention_dp_config", "kv_cache_routing_conversation_affinity", default=False))

    @property
    def has_thinking_budget(self) -> bool:
        """It has to know how a model ends its reasoning, and to read it."""
        has_tokenizer = not self.arguments.get("skip_tokenizer_init", False)
        return bool(self.arguments.get("reasoning_parser")) and has_tokenizer

    @property
    def has_statistics(self) -> bool:
        """Whether the engine tells of its steps."""
        return bool(self.arguments.get("enable_iter_perf_stats"))

    @property
    def is_priority_heeded(self) -> bool:
        """Whether the engine's own queue knows priorities. A word, or a member of the library's enum."""
        policy = self.part("scheduler_config", "waiting_queue_policy")
        return bool(getattr(policy, "value", policy) == "priority")

    @property
    def transfer_s(self) -> float:
        """How long the KV cache of a prefill is kept for its decode worker, in seconds."""
        return float(self.part("cache_transceiver_config", "kv_transfer_timeout_ms", KV_TRANSFER_MS)) / 1000

    @property
    def adapters(self) -> Mapping[str, Path]:
        """LoRA adapters: a folder each, known by its name. Raises EngineStartError where two have one."""
        try:
            return adapters_by_name(self.part("lora_config", "lora_dir", ()))
        except NamedAlike as exc:
            raise EngineStartError(
                f"lora_config.lora_dir has two folders of one name: {exc}.",
                "An adapter is known by the name of its folder: give each another one.",
            ) from exc


def part_of(arguments: Mapping[str, Any], group: str, name: str, default: Any = None) -> Any:
    """One value of a group of arguments, be it a mapping or an object; ``default`` for None, too."""
    found = arguments.get(group)
    if isinstance(found, Mapping):
        value = cast("Mapping[str, Any]", found).get(name)
    else:
        value = getattr(found, name, None)
    return default if value is None else value
