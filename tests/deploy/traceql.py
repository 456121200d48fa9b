"""TraceQL, as far as the dashboard's links have it: conditions on one span, all of which have to hold."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_QUERY = re.compile(r"\{ (.+) \}")
_CONDITION = re.compile(r"([\w.]+) (=~|=|>|<) (\S+)")
_DURATION = re.compile(r"([\d.]+)(ms|s)")
_IN_MS = {"ms": 1.0, "s": 1000.0}
_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
    # Of the whole text, as in PromQL.
    "=~": lambda text, pattern: re.fullmatch(pattern, text) is not None,
}


@dataclass(frozen=True, slots=True)
class Span:
    """own: its attributes. service: who made it."""

    name: str
    duration_ms: float = 0
    own: Mapping[str, object] = field(default_factory=dict[str, object])
    service: str = "dynamo"

    def of(self, service: str) -> Span:
        """The same, of another service."""
        return replace(self, service=service)


def finds(query: str, span: Span) -> bool:
    """Whether the query selects the span. What a span does not have is never found."""
    conditions = _QUERY.fullmatch(query)
    assert conditions, query
    return all(_holds(condition, span) for condition in conditions[1].split(" && "))


def _holds(condition: str, span: Span) -> bool:
    parts = _CONDITION.fullmatch(condition)
    assert parts, condition
    name, compared, value = parts.groups()
    found = _of(span, name)
    return found is not None and _HOLDS[compared](found, _value(value))


def _of(span: Span, name: str) -> object:
    known = {"name": span.name, "duration": span.duration_ms, "resource.service.name": span.service}
    return known[name] if name in known else span.own.get(name.removeprefix("span."))


def _value(text: str) -> str | float:
    if text.startswith('"'):
        return text.strip('"')
    duration = _DURATION.fullmatch(text)
    return float(duration[1]) * _IN_MS[duration[2]] if duration else float(text)
