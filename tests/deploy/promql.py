"""What an expression of PromQL asks for: names, labels and values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Expr, VectorSelector

# One branch of a pattern that stands for itself.
_WORD = re.compile(r"[\w.+-]+")


@dataclass(frozen=True, slots=True)
class Match:
    """One condition on a label. is_pattern: whether the value is a regular expression."""

    label: str
    value: str
    is_pattern: bool
    is_wanted: bool

    @property
    def words(self) -> tuple[str, ...]:
        """Each value that is named; none of a pattern that is more than a list of words."""
        if not self.is_pattern:
            return (self.value,)
        branches = self.value.split("|")
        return tuple(branches) if all(map(_WORD.fullmatch, branches)) else ()


@dataclass(frozen=True, slots=True)
class Asked:
    """One selector: the metric and the conditions on its labels."""

    metric: str
    matches: tuple[Match, ...]


def asked_by(expression: str) -> tuple[Asked, ...]:
    """Every selector, in no promised order. Raises ValueError where it is no PromQL."""
    return tuple(
        Asked(node.name or "", _matches(node))
        for node in _nodes(expression)
        if isinstance(node, VectorSelector)
    )


def metrics_of(expression: str) -> set[str]:
    """The names of all metrics that it reads."""
    return {asked.metric for asked in asked_by(expression)}


def grouping_labels(expression: str) -> set[str]:
    """Labels by which something is grouped, joined or left out."""
    found: set[str] = set()
    for node in _nodes(expression):
        if isinstance(node, AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)
        if isinstance(node, BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
            found.update(node.modifier.matching.labels)
    return found


def _nodes(expression: str) -> Iterator[Expr]:
    found: list[Expr] = []
    promql_parser.walk(promql_parser.parse(expression), pre_visit=found.append)
    return iter(found)


def _matches(selector: VectorSelector) -> tuple[Match, ...]:
    return tuple(
        Match(
            label=matcher.name,
            value=matcher.value,
            is_pattern="Re" in str(matcher.op),
            is_wanted=not str(matcher.op).rpartition(".")[2].startswith("Not"),
        )
        for matcher in selector.matchers.matchers
    )
