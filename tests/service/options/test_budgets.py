"""Shutdown budgets: they fit into each other, or the start is refused with all numbers."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.options import BudgetError, DrainBudgets, OperatorTimes, plan_budgets
from service.options.budgets import FLUSH_S, GRACE_VARIABLE, PREFILL_DRAIN_VARIABLE, WORKER_TIMEOUT_VARIABLE
from tests.service.options.world import load, refused

_DRAINS = st.floats(0, 86400)
_OPERATORS = st.builds(
    OperatorTimes,
    grace_s=st.none() | st.floats(0, 1000),
    worker_timeout_s=st.none() | st.integers(1, 100_000),
    prefill_drain_s=st.none() | st.floats(0, 86400),
    termination_grace_s=st.none() | st.floats(1, 200_000),
)


def test_the_defaults_are_over_after_55_seconds() -> None:
    """Inside the 60 s that operators give a pod by default."""
    budgets = plan_budgets(35, OperatorTimes(termination_grace_s=60))
    assert (budgets.grace_s, budgets.move_at_s, budgets.drain_until_s) == (5, 29.5, 40)
    assert (budgets.return_by_s, budgets.guard_at_s, budgets.hard_exit_s) == (53, 54, 55)
    assert (budgets.read_by_s, budgets.engine_stop_s) == (41.5, 9)
    assert budgets.environment == {
        GRACE_VARIABLE: "5",
        WORKER_TIMEOUT_VARIABLE: "50",
        PREFILL_DRAIN_VARIABLE: "35",
    }


def _plan_or_none(drain_s: float, operator: OperatorTimes) -> DrainBudgets | None:
    try:
        return plan_budgets(drain_s, operator)
    except BudgetError:
        return None


@given(_DRAINS, _OPERATORS)
def test_a_plan_is_in_order_or_refused(drain_s: float, operator: OperatorTimes) -> None:
    """Grace, move, end of drain, return, guard, hard exit, SIGKILL: never in another order."""
    plan = _plan_or_none(drain_s, operator)
    assume(plan is not None)
    assert plan is not None
    assert 0 <= plan.grace_s <= plan.move_at_s <= plan.drain_until_s
    assert plan.drain_until_s + 4.99 <= plan.return_by_s < plan.guard_at_s < plan.hard_exit_s
    assert plan.return_by_s == plan.hard_exit_s - 2
    assert plan.drain_until_s <= plan.read_by_s
    assert plan.engine_stop_s >= 1
    assert plan.read_by_s + plan.engine_stop_s + FLUSH_S <= plan.return_by_s + 1e-6
    assert operator.termination_grace_s is None or plan.hard_exit_s <= operator.termination_grace_s


@given(_DRAINS)
def test_without_an_operator_every_drain_fits(drain_s: float) -> None:
    """Our own numbers never contradict each other, and the framework gets all of them as it reads them."""
    plan = plan_budgets(drain_s, OperatorTimes())
    assert set(plan.environment) == {GRACE_VARIABLE, WORKER_TIMEOUT_VARIABLE, PREFILL_DRAIN_VARIABLE}
    assert plan.environment[WORKER_TIMEOUT_VARIABLE].isdigit()


@given(_DRAINS, st.none() | st.floats(0, 1000))
def test_a_plan_that_is_told_its_own_numbers_does_not_change(drain_s: float, grace_s: float | None) -> None:
    """What we set for the framework is what we planned with; then nothing is missing any more."""
    first = plan_budgets(drain_s, OperatorTimes(grace_s=grace_s))
    again = plan_budgets(
        drain_s,
        OperatorTimes(
            grace_s=first.grace_s,
            worker_timeout_s=int(first.environment[WORKER_TIMEOUT_VARIABLE]),
            prefill_drain_s=float(first.environment[PREFILL_DRAIN_VARIABLE]),
        ),
    )
    assert again.environment == {}
    assert (again.move_at_s, again.drain_until_s, again.hard_exit_s) == (
        first.move_at_s,
        first.drain_until_s,
        first.hard_exit_s,
    )


@given(_DRAINS, _DRAINS)
def test_a_longer_drain_never_ends_earlier(one_s: float, other_s: float) -> None:
    """More time for requests moves everything back."""
    short, long = (plan_budgets(drain_s, OperatorTimes()) for drain_s in sorted((one_s, other_s)))
    assert short.move_at_s <= long.move_at_s
    assert short.drain_until_s <= long.drain_until_s
    assert short.hard_exit_s <= long.hard_exit_s


@pytest.mark.parametrize(("timeout_s", "fits"), [(41, False), (42, True)])
def test_the_operators_time_out_must_hold_the_drain(timeout_s: int, fits: bool) -> None:
    """35 s of drain, 5 s to stop the engine, 2 s before the hard exit."""
    operator = OperatorTimes(worker_timeout_s=timeout_s)
    if fits:
        assert plan_budgets(35, operator).hard_exit_s == 47
        return
    with pytest.raises(BudgetError, match=r"=41 is too short.*at least 42 is needed.*at most 34"):
        plan_budgets(35, operator)


@pytest.mark.parametrize(("grace_s", "fits"), [(54.9, False), (55, True)])
def test_the_termination_grace_must_hold_everything(grace_s: float, fits: bool) -> None:
    """Or the kubelet kills a worker that is still draining."""
    operator = OperatorTimes(termination_grace_s=grace_s)
    if fits:
        assert plan_budgets(35, operator).hard_exit_s == 55
        return
    with pytest.raises(BudgetError, match=r"=54.9 is too short.*hard exit at 55 s"):
        plan_budgets(35, operator)


def test_a_prefill_wait_longer_than_the_drain_is_refused() -> None:
    """The framework spends it inside the drain."""
    with pytest.raises(BudgetError, match="is longer than --drain-timeout 35"):
        plan_budgets(35, OperatorTimes(prefill_drain_s=36))


def test_a_contradiction_stops_the_start() -> None:
    """The operator's numbers come from the environment; the error is one of the configuration's problems."""
    line = refused(env={WORKER_TIMEOUT_VARIABLE: "30"})
    assert line.startswith(f"shutdown budgets: {WORKER_TIMEOUT_VARIABLE}=30 is too short")
    assert load("--drain-timeout", "20", env={WORKER_TIMEOUT_VARIABLE: "30"}).drain.hard_exit_s == 35


@pytest.mark.parametrize("text", ["30.0", "30.5", " 30", "1e2"])
def test_a_time_out_the_framework_would_misread_is_refused(text: str) -> None:
    """Framework 1.4.2 silently takes anything but a whole number for its default of 30 s."""
    assert "the framework ignores fractions" in refused(env={WORKER_TIMEOUT_VARIABLE: text})


def test_variables_of_the_operator_are_not_set_again() -> None:
    """Only what is missing is set."""
    settings = load(env={GRACE_VARIABLE: "1", WORKER_TIMEOUT_VARIABLE: "60", PREFILL_DRAIN_VARIABLE: "10"})
    assert settings.environment == {"DYN_SYSTEM_HOST": "127.0.0.1"}
    assert settings.drain.hard_exit_s == 61
