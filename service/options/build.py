"""From resolved values to typed `Settings`. Nothing is checked here any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from actors.settings import GraphSettings
from protocols.spec import Stage
from service.options.asked import tensorrt_options
from service.options.rules import QUEUE_VARIABLES, expand_template
from service.options.settings import (
    Action,
    EngineSettings,
    ModelSettings,
    ProcessorImport,
    RequestSettings,
    RuntimeSettings,
    Settings,
    SyntheticSettings,
    TorchSettings,
)
from service.options.structural_tags import tags_of
from service.options.values import Secret

if TYPE_CHECKING:
    from service.options.budgets import DrainBudgets
    from service.options.engine_arguments import EngineArguments, Publishing
    from service.options.engine_choice import EngineName
    from service.options.resolve import Resolution

SYSTEM_HOST_VARIABLE = "DYN_SYSTEM_HOST"
# Set in every pod. Probes come from outside of it, so the framework's own 0.0.0.0 is right there.
_KUBERNETES_VARIABLE = "KUBERNETES_SERVICE_HOST"
# By this key the framework and the engine know a health check from a request.
_PROBE_KEY = "_HEALTH_CHECK"
# Least step budget when none is given; in tokens.
_STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was made of the options on the way. ``arguments``: of TensorRT-LLM, where that runs."""

    engine: EngineName
    role: Stage
    publishing: Publishing
    arguments: EngineArguments | None


def build_settings(
    resolution: Resolution,
    outcome: Outcome,
    budgets: DrainBudgets,
    environ: Mapping[str, str],
    warnings: Sequence[str],
) -> Settings:
    """Settings from values that were all accepted."""
    dump = resolution.find("dump_config_to", str)
    return Settings(
        action=_action(resolution),
        runtime=_runtime(resolution, outcome, environ),
        model=_model(resolution, outcome.arguments),
        requests=_requests(resolution, outcome),
        engine=_engine(resolution, outcome),
        torch=_torch(resolution),
        synthetic=SyntheticSettings(step_s=resolution.get("synthetic_step_ms", float) / 1000),
        engine_arguments=outcome.arguments,
        graph=_graph(resolution, budgets),
        drain=budgets,
        control_token=resolution.find("control_token", Secret),
        dump_config_to=Path(dump).expanduser() if dump else None,
        environment={**_system_host(resolution, environ), **budgets.environment},
        environment_to_unset=tuple(name for name in QUEUE_VARIABLES if name in environ),
        warnings=tuple(warnings),
        resolution=resolution,
    )


def _action(resolution: Resolution) -> Action:
    if resolution.get("check_config", bool):
        return "check_config"
    return "print_config" if resolution.get("print_config", bool) else "serve"


def _runtime(resolution: Resolution, outcome: Outcome, environ: Mapping[str, str]) -> RuntimeSettings:
    namespace, component, endpoint = _endpoint_parts(resolution, outcome.role)
    return RuntimeSettings(
        namespace=namespace,
        component=component,
        endpoint=endpoint,
        role=outcome.role,
        discovery_backend=resolution.get("discovery_backend", str),
        request_plane=resolution.get("request_plane", str),
        event_plane=resolution.find("event_plane", str),
        publishes_kv_events=outcome.publishing.has_kv_events,
        publishes_engine_metrics=outcome.publishing.has_metrics and outcome.arguments is not None,
        response_plane=resolution.get("response_plane", str),
        kv_state_endpoint=resolution.find("kv_state_endpoint", str),
        endpoint_types=cast("tuple[str, ...]", resolution.get("endpoint_types", tuple)),
        system_host=resolution.find("system_host", str) or _default_host(environ),
        system_port=resolution.get("system_port", int),
        disable_gc=resolution.get("disable_gc", bool),
    )


def _endpoint_parts(resolution: Resolution, role: Stage) -> tuple[str, str, str]:
    full = resolution.find("endpoint", str)
    if full is not None:
        namespace, component, endpoint = full.removeprefix("dyn://").split(".")
        return namespace, component, endpoint
    suffix = resolution.find("namespace_suffix", str)
    namespace = resolution.get("namespace", str)
    component = "prefill" if role is Stage.PREFILL else "backend"
    return f"{namespace}-{suffix}" if suffix else namespace, component, "generate"


def _default_host(environ: Mapping[str, str]) -> str:
    return "0.0.0.0" if environ.get(_KUBERNETES_VARIABLE) else "127.0.0.1"  # noqa: S104  the framework's own default


def _system_host(resolution: Resolution, environ: Mapping[str, str]) -> dict[str, str]:
    if resolution.find("system_host", str):
        return {}
    return {SYSTEM_HOST_VARIABLE: _default_host(environ)}


def _model(resolution: Resolution, arguments: EngineArguments | None) -> ModelSettings:
    """Where TensorRT-LLM's own arguments say something else than the options do, they win."""
    settings = ModelSettings(
        model=resolution.get("model", str),
        served_model_name=resolution.find("served_model_name", str),
        max_seq_len=resolution.find("max_seq_len", int),
        kv_block_tokens=resolution.get("kv_block_size", int),
        trust_remote_code=resolution.get("trust_remote_code", bool),
    )
    if arguments is None:
        return settings
    return replace(
        settings,
        max_seq_len=arguments.max_seq_len,
        kv_block_tokens=arguments.kv_block_tokens,
        trust_remote_code=arguments.trust_remote_code,
    )


def _requests(resolution: Resolution, outcome: Outcome) -> RequestSettings:
    template = resolution.find("custom_jinja_template", str)
    payload = resolution["health_check_payload"].value
    return RequestSettings(
        tool_call_parser=resolution.find("dyn_tool_call_parser", str),
        reasoning_parser=resolution.find("dyn_reasoning_parser", str),
        default_thinking_mode=resolution.find("dyn_default_thinking_mode", str),
        exclude_tools_when_tool_choice_none=resolution.get("exclude_tools_when_tool_choice_none", bool),
        structural_tags=tags_of(resolution, outcome),
        custom_jinja_template=expand_template(template) if template else None,
        health_check_payload={**payload, _PROBE_KEY: True} if isinstance(payload, Mapping) else None,
    )


def _engine(resolution: Resolution, outcome: Outcome) -> EngineSettings:
    arguments = outcome.arguments
    batch = resolution.get("max_batch_size", int)
    step_tokens = resolution.find("max_num_tokens", int) or max(_STEP_TOKENS, batch)
    return EngineSettings(
        requested=resolution.get("engine", str),
        expected=outcome.engine,
        tensorrt_options=tensorrt_options(resolution),
        max_num_seqs=arguments.max_batch_size if arguments else batch,
        step_tokens=arguments.max_num_tokens if arguments else step_tokens,
        processors=_processors(resolution),
        has_test_processor=resolution.get("test_logits_processor", bool),
    )


def _processors(resolution: Resolution) -> tuple[ProcessorImport, ...]:
    found = cast("dict[str, dict[str, Any]]", resolution.find("logits_processor", dict) or {})
    return tuple(ProcessorImport(name=name, **entry) for name, entry in found.items())


def _torch(resolution: Resolution) -> TorchSettings:
    return TorchSettings(
        dtype=resolution.get("dtype", str),
        device=resolution.get("device", str),
        threads=resolution.get("threads", int),
        memory_gb=resolution.find("memory_gb", float),
    )


def _graph(resolution: Resolution, budgets: DrainBudgets) -> GraphSettings:
    return GraphSettings(
        max_live=resolution.get("max_live", int),
        chunk_tokens=resolution.get("chunk_tokens", int),
        outbox_tokens=resolution.get("outbox_tokens", int),
        outbox_total_tokens=resolution.get("outbox_total_tokens", int),
        engine_queue=resolution.get("engine_queue", int),
        deadline_s=resolution.find("deadline", float),
        stall_timeout_s=resolution.get("stall_timeout", float),
        hang_timeout_s=resolution.get("engine_hang_timeout", float),
        engine_stop_s=budgets.engine_stop_s,
        default_seed=resolution.find("seed", int),
    )
