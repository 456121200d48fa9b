"""From settings to a worker: the one place that knows every part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dynamo.common.backend.engine import LogitsProcessorSpec
from dynamo.common.backend.worker import WorkerConfig

from protocols.engine import Engine
from service import drivers
from service.engine import ActorEngine
from service.engine_needs import EngineNeeds
from service.framework import build_worker_config, installed_version, mode_of
from service.models import ResolvedModel
from service.models.facts import ModelFacts
from service.notify import Notifier
from service.notify.events import Planned, Preparing
from service.options.engine_choice import EngineName
from service.options.settings import RequestSettings, Settings
from service.plan import ServingPlan
from service.processors import hello
from service.processors.imports import Factory
from service.stopping import StopSignals
from service.telemetry.bounds import BoundCounts
from service.telemetry.logs import get_logger
from service.telemetry.recorder import RecorderSettings, build_recorder

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class ThisProcess:
    """What there is once a process, whatever it serves.

    instance_id: tells it from the others of its service, in stories and spans.
    """

    signals: StopSignals
    notifier: Notifier
    instance_id: str


def build_worker(
    settings: Settings,
    engine_name: EngineName,
    model: ResolvedModel,
    process: ThisProcess,
    factories: Mapping[str, Factory],
) -> ActorEngine:
    """Everything put together, nothing started. ``factories``: logits processors that requests may choose.

    Raises ConfigError when the test processor is asked for and the model cannot say its answer.
    """
    spec = _test_processor(settings, model)
    processors = dict(factories) if spec is None else {**factories, hello.NAME: hello.factory()}
    bounds = BoundCounts()
    served_name = settings.model.served_model_name or model.served_name
    process.notifier.tell(Planned(served_name, engine_name, settings.drain.hard_exit_s))
    progress = partial(_tell_stage, process.notifier)
    needs = EngineNeeds(model=model, processors=processors, on_bound=bounds, progress=progress)
    engine = drivers.build_engine(settings, engine_name, needs)
    plan = _plan(settings, model, served_name, spec)
    recorder = build_recorder(_about(engine, settings, served_name, process, bounds))
    return ActorEngine(plan, engine, recorder, process.signals, process.notifier)


def _about(
    engine: Engine, settings: Settings, served_name: str, process: ThisProcess, bounds: BoundCounts
) -> RecorderSettings:
    return RecorderSettings(
        engine=engine.name,
        framework_version=installed_version(),
        model=served_name,
        instance_id=process.instance_id,
        namespace=settings.runtime.namespace,
        bounds=bounds,
        capabilities=engine.capabilities,
        maintenance=engine.maintenance,
    )


def _test_processor(settings: Settings, model: ResolvedModel) -> LogitsProcessorSpec | None:
    if not hello.is_wanted(settings):
        return None
    where = settings.resolution["test_logits_processor"].where
    return hello.resolve_test_spec(model.path, ModelFacts.read(model.path).vocab_size, where)


def _plan(
    settings: Settings, model: ResolvedModel, served_name: str, spec: LogitsProcessorSpec | None
) -> ServingPlan:
    token = settings.control_token
    return ServingPlan(
        graph=replace(settings.graph, default_processors=hello.entries_of(spec)),
        budgets=settings.drain,
        worker_config=worker_config(settings, model, served_name),
        model_path=str(model.path),
        served_model_name=served_name,
        control_token=None if token is None else token.reveal(),
        is_loopback=settings.runtime.system_host in LOOPBACK,
        logits_processors=spec,
        publishes_kv_events=settings.runtime.publishes_kv_events,
        role=settings.runtime.role,
        system_server=settings.runtime.system_server,
    )


def _tell_stage(notifier: Notifier, stage: str, fraction: float) -> None:
    """One line a stage of loading; called in the engine's thread."""
    notifier.tell(Preparing(f"{stage}, {fraction:.0%}"))
    get_logger("service.loading").info("model.load", stage=stage, done=f"{fraction:.0%}")


def worker_config(settings: Settings, model: ResolvedModel, served_name: str) -> WorkerConfig:
    """How the framework registers this worker. Fields it does not have were refused by the options.

    Structural tags are there twice, for the older framework and the newer one: neither has both.
    """
    runtime = settings.runtime
    wanted: dict[str, Any] = {
        "namespace": runtime.namespace,
        "component": runtime.component,
        "disaggregation_mode": mode_of(runtime.role),
        "endpoint": runtime.endpoint,
        "kv_state_endpoint": runtime.kv_state_endpoint,
        "model_name": str(model.path),
        "served_model_name": served_name,
        "endpoint_types": ",".join(runtime.endpoint_types),
        "discovery_backend": runtime.discovery_backend,
        "request_plane": runtime.request_plane,
        "response_plane": runtime.response_plane,
        "event_plane": runtime.event_plane,
        "enable_kv_routing": runtime.publishes_kv_events,
        **_about_requests(settings.requests),
    }
    # None leaves the framework's own default in place, where a field has one that is not None.
    return build_worker_config({name: value for name, value in wanted.items() if value is not None})


def _about_requests(requests: RequestSettings) -> dict[str, Any]:
    """What the framework's frontend needs to know to prepare requests for this worker."""
    tags = requests.structural_tags
    template = requests.custom_jinja_template
    return {
        "custom_jinja_template": None if template is None else str(template),
        "tool_call_parser": requests.tool_call_parser,
        "reasoning_parser": requests.reasoning_parser,
        "default_thinking_mode": requests.default_thinking_mode,
        "exclude_tools_when_tool_choice_none": requests.exclude_tools_when_tool_choice_none,
        "structural_tag": tags.as_object,
        "structural_tag_mode": "on" if tags.enabled else "off",
        "structural_tag_scope": tags.scope,
        "structural_tag_schema": tags.schema,
        "health_check_payload": requests.health_check_payload,
    }
