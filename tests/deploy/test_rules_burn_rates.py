"""Service levels alert by the burn rates that are usual: two windows each, a fast and a slow pair."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from tests.deploy.promql import asked_by
from tests.deploy.rule_files import ALERTS, RECORDINGS, Rule, name_of

# A second, over the long window; below it nobody is woken up for a single request.
FLOOR = 0.05
# What else it takes to wake somebody up for lost requests: so many of them in the long window.
LEAST_LOST = 10
MONTH_H = 30 * 24
HOURS = {"1h": 1, "6h": 6, "1d": 24, "3d": 72}


@dataclass(frozen=True, slots=True)
class Pair:
    """How many times too fast the budget burns: over a long window, and still over a short one."""

    factor: float
    long: str
    short: str

    @property
    def spent(self) -> float:
        """Share of a month's budget that is gone when the long window is over."""
        return self.factor * HOURS[self.long] / MONTH_H


FAST = (Pair(14.4, "1h", "5m"), Pair(6, "6h", "30m"))
SLOW = (Pair(3, "1d", "2h"), Pair(1, "3d", "6h"))
# Name in alerts; what is bad and what is counted, as recorded; the share that may be bad.
LEVELS = (
    ("Availability", "requests_lost", "requests_owed", 0.001),
    ("FirstToken", "first_token_slow", "first_token", 0.01),
    ("TokenPace", "token_pace_slow", "token_pace", 0.01),
)


def expected(pairs: tuple[Pair, ...], bad: str, counted: str, budget: float) -> str:
    """The whole expression. Of a budget so small that a few requests burn it fast, they are counted, too."""
    return " or ".join(
        f"( component:dynamo_actor_{bad}:ratio_rate{pair.long} > {_threshold(pair.factor, budget)}"
        f" and component:dynamo_actor_{bad}:ratio_rate{pair.short} > {_threshold(pair.factor, budget)}"
        f" and component:dynamo_actor_{counted}:rate{pair.long} > {FLOOR}{_least(pair, bad, budget)} )"
        for pair in pairs
    )


def _least(pair: Pair, bad: str, budget: float) -> str:
    seconds = HOURS[pair.long] * 3600
    if FLOOR * seconds * pair.factor * budget >= LEAST_LOST:
        return ""
    return f" and component:dynamo_actor_{bad}:rate{pair.long} * {seconds} >= {LEAST_LOST}"


def _threshold(factor: float, budget: float) -> str:
    return f"{budget:g}" if factor == 1 else f"{factor:g} * {budget:g}"


def alert(name: str) -> Rule:
    (found,) = (rule for rule in ALERTS if rule.name == name)
    return found


@pytest.mark.parametrize(("name", "bad", "counted", "budget"), LEVELS)
@pytest.mark.parametrize(("speed", "pairs"), [("Fast", FAST), ("Slowly", SLOW)])
def test_every_level_has_both_pairs_of_both_speeds(
    speed: str, pairs: tuple[Pair, ...], name: str, bad: str, counted: str, budget: float
) -> None:
    """Both windows, the factor, the budget and the floor, of all three levels alike."""
    found = alert(f"DynamoActor{name}Burns{speed}")
    assert " ".join(found.expression.split()) == expected(pairs, bad, counted, budget)
    assert (found.labels["severity"], found.for_) == (
        ("critical", "2m") if speed == "Fast" else ("warning", "15m")
    )


def test_factors_are_those_that_spend_a_round_share_of_the_budget() -> None:
    """2 % and 5 % wake somebody up, 10 % waits for the morning."""
    spent = [pair.spent for pair in (*FAST, *SLOW)]
    assert all(map(math.isclose, spent, [0.02, 0.05, 0.1, 0.1]))


@pytest.mark.parametrize(("metric", "bound"), [
    ("dynamo_actor_time_to_first_token_seconds_bucket", "1.0"),
    ("dynamo_actor_time_per_output_token_seconds_bucket", "0.1"),
])  # fmt: skip
def test_what_is_slow_is_a_bound_of_the_histogram(metric: str, bound: str) -> None:
    """The same in all windows: between two bounds nobody could count."""
    bounds = {
        match.value
        for rule in RECORDINGS
        for asked in asked_by(rule.expression)
        if asked.metric == metric
        for match in asked.matches
    }
    assert bounds == {bound}


@pytest.mark.parametrize("rule", [rule for rule in RECORDINGS if ":rate" in rule.name], ids=name_of)
def test_no_generation_of_an_update_has_a_history_of_its_own(rule: Rule) -> None:
    """The end that Dynamo's operator gives to a namespace is cut off wherever something is summed up."""
    sums = rule.expression.count("sum by (")
    assert sums == rule.expression.count("(label_replace(") == rule.expression.count('"(.+)-[0-9a-f]{8}"')
