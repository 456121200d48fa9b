"""What the facade is told: the settings of one serving worker, resolved and checked."""

from __future__ import annotations

from dataclasses import dataclass

from dynamo.common.backend.engine import LogitsProcessorSpec
from dynamo.common.backend.worker import WorkerConfig

from actors.settings import GraphSettings
from protocols.spec import Stage
from service.options.budgets import DrainBudgets
from service.system_server import SystemServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """Made from the operator's settings by `service.assembly`, before the framework runs.

    model_path: the folder whose tokenizer and template the frontend gets.
    logits_processors: those of every request, as the framework describes them; None without any.
    is_loopback: whether control routes can be reached from this machine only.
    publishes_kv_events: whether routers are told what lies in the KV cache.
    role: what this worker does of a request.
    system_server: of the framework; None where nobody can read its ``/metrics``.
    """

    graph: GraphSettings
    budgets: DrainBudgets
    worker_config: WorkerConfig
    model_path: str
    served_model_name: str
    control_token: str | None = None
    is_loopback: bool = True
    logits_processors: LogitsProcessorSpec | None = None
    publishes_kv_events: bool = False
    role: Stage = Stage.WHOLE
    system_server: SystemServer | None = None
