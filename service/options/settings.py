"""The resolved configuration, typed, in small groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from service.system_server import SystemServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from actors.settings import GraphSettings
    from protocols.spec import Stage
    from service.options.budgets import DrainBudgets
    from service.options.engine_arguments import EngineArguments
    from service.options.engine_choice import EngineName
    from service.options.resolve import Resolution
    from service.options.values import Secret

Action = Literal["serve", "print_config", "check_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Where the worker registers, and what it tells there. ``event_plane`` None: the framework's choice.

    role: what it does of a request; WHOLE is aggregated.
    publishes_engine_metrics: whether TensorRT-LLM's own metrics are shown.
    """

    namespace: str
    component: str
    endpoint: str
    role: Stage
    discovery_backend: str
    request_plane: str
    event_plane: str | None
    publishes_kv_events: bool
    publishes_engine_metrics: bool
    response_plane: str
    kv_state_endpoint: str | None
    endpoint_types: tuple[str, ...]
    system_host: str
    system_port: int
    disable_gc: bool

    @property
    def system_server(self) -> SystemServer | None:
        """Of the framework; None where the operator wants none."""
        return None if self.system_port < 0 else SystemServer(self.system_host, self.system_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What is served. ``max_seq_len`` None: the model's own. Lengths in tokens."""

    model: str
    served_model_name: str | None
    max_seq_len: int | None
    kv_block_tokens: int
    trust_remote_code: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuralTags:
    """Guidance of tool calls.

    enabled, scope, schema: the three options of framework 1.4.
    as_object: what framework 1.6 has in their place; None is off.
    """

    enabled: bool
    scope: str
    schema: str
    as_object: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """What the frontend is told about requests. The template exists; the payload is marked as a probe."""

    tool_call_parser: str | None
    reasoning_parser: str | None
    default_thinking_mode: str | None
    exclude_tools_when_tool_choice_none: bool
    structural_tags: StructuralTags
    custom_jinja_template: Path | None
    health_check_payload: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorImport:
    """A logits processor that requests may choose.

    factory: ``module:attribute`` of what makes an instance. options: its keyword arguments where a
    request says nothing else.
    """

    name: str
    factory: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What every engine is told.

    requested: the word of ``--engine``; `choose_engine` makes the choice. expected: what it comes to, and
    whose defaults these settings hold.
    tensorrt_options: TensorRT-LLM options that were given, be it with their default: no reason for torch.
    max_num_seqs, step_tokens: sequences, and prefill and decode tokens, of one step of one attention-DP rank.
    processors: what requests may choose. has_test_processor: every answer is the same.
    """

    requested: str
    expected: EngineName
    tensorrt_options: tuple[str, ...]
    max_num_seqs: int
    step_tokens: int
    processors: tuple[ProcessorImport, ...] = ()
    has_test_processor: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchSettings:
    """Engine torch. ``threads`` 0: all cores. ``memory_gb`` (10**9 bytes) None: a quarter of what is free."""

    dtype: str
    device: str
    threads: int
    memory_gb: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSettings:
    """Engine synthetic. ``step_s`` 0: as fast as it can."""

    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the service needs to know.

    engine_arguments: what TensorRT-LLM is built with; None with the other engines.
    graph: the bounds of the actors' graph. drain: the budgets of the shutdown.
    environment, environment_to_unset: what must change in os.environ before the framework starts.
    resolution: every option with its source, for people.
    """

    action: Action
    runtime: RuntimeSettings
    model: ModelSettings
    requests: RequestSettings
    engine: EngineSettings
    torch: TorchSettings
    synthetic: SyntheticSettings
    engine_arguments: EngineArguments | None
    graph: GraphSettings
    drain: DrainBudgets
    control_token: Secret | None
    dump_config_to: Path | None
    environment: Mapping[str, str]
    environment_to_unset: tuple[str, ...]
    warnings: tuple[str, ...]
    resolution: Resolution
