"""The time budgets of a shutdown, all counted in seconds from the signal.

    0 ---- grace_s ---------- move_at_s ---- drain_until_s ---- return_by_s -- guard_at_s -- hard_exit_s
      serve   |  drain: wait      |  drain: end what    | stop the engine,  |  our own    |  the framework
              |  for all          |  can be moved       | flush             |  last exit  |  exits (code 143)

The framework sleeps through the grace period, calls `cleanup()`, and exits hard when its own time-out has
passed after the grace. Everything here is arithmetic on those numbers: no clock, no environment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

GRACE_VARIABLE = "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"
WORKER_TIMEOUT_VARIABLE = "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT"
PREFILL_DRAIN_VARIABLE = "DYN_PREFILL_DRAIN_TIMEOUT_S"
TERMINATION_GRACE_VARIABLE = "DYN_ACTOR_TERMINATION_GRACE_SECS"

# Share of the drain after which requests that another worker can take over are handed back.
MOVE_SHARE = 0.7
# What we return before the framework's hard exit, and when the guard thread acts, in seconds before it.
RETURN_MARGIN_S = 2.0
GUARD_MARGIN_S = 1.0
# Between the end of the drain and our return: the last answers are read, the engine is stopped, telemetry is
# flushed (a collector may hold it for 2 s).
READ_S = 1.5
LEAST_ENGINE_STOP_S = 1.0
FLUSH_S = 2.5
STOP_RESERVE_S = READ_S + LEAST_ENGINE_STOP_S + FLUSH_S
# An engine that has not stopped by then does not stop.
_LONGEST_ENGINE_STOP_S = 10.0
# The framework's time-out when the operator gives none: the drain and this much.
_TIMEOUT_BEYOND_DRAIN_S = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTimes:
    """What the operator decided. None: not given. All in seconds.

    grace_s: the framework's sleep after the signal. worker_timeout_s: from there to its hard exit; a whole
    number. prefill_drain_s: the framework's wait for the transfers of a prefill worker.
    termination_grace_s: from SIGTERM to SIGKILL by the kubelet or systemd.
    """

    grace_s: float | None = None
    worker_timeout_s: int | None = None
    prefill_drain_s: float | None = None
    termination_grace_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBudgets:
    """When what happens, in seconds from the signal.

    0 <= grace_s <= move_at_s <= drain_until_s < return_by_s < guard_at_s < hard_exit_s.
    environment: variables the framework must see and the operator has not set.
    """

    grace_s: float
    move_at_s: float
    drain_until_s: float
    return_by_s: float
    guard_at_s: float
    hard_exit_s: float
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def engine_stop_s(self) -> float:
        """How long stopping the engine may take, in seconds from its own beginning."""
        left_s = self.return_by_s - self.drain_until_s - READ_S - FLUSH_S
        return min(max(left_s, LEAST_ENGINE_STOP_S), _LONGEST_ENGINE_STOP_S)

    @property
    def read_by_s(self) -> float:
        """When the last answer has been read, or its reader is left behind."""
        return max(self.drain_until_s, self.return_by_s - FLUSH_S - self.engine_stop_s)


class BudgetError(ValueError):
    """Times that contradict each other. The text holds all numbers and what would be enough."""


def plan_budgets(drain_timeout_s: float, operator: OperatorTimes) -> DrainBudgets:
    """Lay the budgets out. Raises BudgetError when they do not fit into what the operator gave."""
    grace_s = 5.0 if operator.grace_s is None else operator.grace_s
    worker_timeout_s = operator.worker_timeout_s
    if worker_timeout_s is None:
        worker_timeout_s = math.ceil(drain_timeout_s) + _TIMEOUT_BEYOND_DRAIN_S
    hard_exit_s = grace_s + worker_timeout_s
    budgets = DrainBudgets(
        grace_s=grace_s,
        move_at_s=grace_s + MOVE_SHARE * drain_timeout_s,
        drain_until_s=grace_s + drain_timeout_s,
        return_by_s=hard_exit_s - RETURN_MARGIN_S,
        guard_at_s=hard_exit_s - GUARD_MARGIN_S,
        hard_exit_s=hard_exit_s,
        environment=_missing_variables(operator, grace_s, drain_timeout_s, worker_timeout_s),
    )
    _check_drain_fits(budgets, drain_timeout_s, worker_timeout_s)
    _check_prefill_fits(operator, drain_timeout_s)
    _check_termination_grace(budgets, operator)
    return budgets


def _missing_variables(
    operator: OperatorTimes, grace_s: float, drain_timeout_s: float, worker_timeout_s: int
) -> dict[str, str]:
    wanted = {
        GRACE_VARIABLE: (operator.grace_s, f"{grace_s:g}"),
        WORKER_TIMEOUT_VARIABLE: (operator.worker_timeout_s, str(worker_timeout_s)),
        PREFILL_DRAIN_VARIABLE: (operator.prefill_drain_s, str(math.floor(drain_timeout_s))),
    }
    return {name: text for name, (given, text) in wanted.items() if given is None}


def _check_drain_fits(budgets: DrainBudgets, drain_timeout_s: float, worker_timeout_s: int) -> None:
    needed_s = drain_timeout_s + STOP_RESERVE_S + RETURN_MARGIN_S
    if worker_timeout_s < needed_s:
        raise BudgetError(
            f"{WORKER_TIMEOUT_VARIABLE}={worker_timeout_s} is too short: after the grace of "
            f"{budgets.grace_s:g} s the drain takes up to {drain_timeout_s:g} s, stopping the engine "
            f"{STOP_RESERVE_S:g} s, and {RETURN_MARGIN_S:g} s must be left; at least "
            f"{math.ceil(needed_s)} is needed, or a --drain-timeout of at most "
            f"{max(0.0, worker_timeout_s - STOP_RESERVE_S - RETURN_MARGIN_S):g}"
        )


def _check_prefill_fits(operator: OperatorTimes, drain_timeout_s: float) -> None:
    if operator.prefill_drain_s is not None and operator.prefill_drain_s > drain_timeout_s:
        raise BudgetError(
            f"{PREFILL_DRAIN_VARIABLE}={operator.prefill_drain_s:g} is longer than --drain-timeout "
            f"{drain_timeout_s:g}: it is spent inside the drain"
        )


def _check_termination_grace(budgets: DrainBudgets, operator: OperatorTimes) -> None:
    given_s = operator.termination_grace_s
    if given_s is not None and given_s < budgets.hard_exit_s:
        raise BudgetError(
            f"{TERMINATION_GRACE_VARIABLE}={given_s:g} is too short: the worker may take until "
            f"{budgets.hard_exit_s:g} s after SIGTERM (grace {budgets.grace_s:g} s, drain until "
            f"{budgets.drain_until_s:g} s, hard exit at {budgets.hard_exit_s:g} s)"
        )
