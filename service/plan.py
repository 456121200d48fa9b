"""What the facade is told: the settings of one serving worker, resolved and checked."""

from __future__ import annotations

from dataclasses import dataclass

from dynamo.common.backend.worker import WorkerConfig

from actors.settings import GraphSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StopBudgets:
    """Seconds after the signal; see docs/operations.md for the ladder they make.

    move_at_s: requests that a frontend can continue elsewhere are handed over.
    drain_until_s: the others are interrupted. return_by_s: ``cleanup()`` has returned.
    """

    move_at_s: float
    drain_until_s: float
    return_by_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """Made from the operator's settings by `service.assembly`, before the framework runs."""

    graph: GraphSettings
    budgets: StopBudgets
    worker_config: WorkerConfig
    model_path: str
    served_model_name: str
    control_token: str | None = None
    is_loopback: bool = True
