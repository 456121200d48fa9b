"""What one question of the dashboard should be answered with, and the shapes that answers have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The labels of `dashboard_workers.A` and `B`, where a figure is one worker's.
A, B = 'instance="a:9090", pod="a-0"', 'instance="b:9090", pod="b-0"'
Samples = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one question, known by its panel's title and its legend: labels and number of each series.

    of_nobody: what it says when nothing is scraped. beside: what it also says of neighbours nobody chose.
    """

    title: str
    legend: str
    samples: Samples
    of_nobody: Samples = field(default_factory=dict[str, float])
    beside: Samples = field(default_factory=dict[str, float])


def one(number: float) -> Samples:
    """All together."""
    return {"{}": number}


def each(a: float, b: float) -> Samples:
    """One for each worker."""
    return {f"{{{A}}}": a, f"{{{B}}}": b}


def by(label: str, **numbers: float) -> Samples:
    """One for each value of a label."""
    return {f'{{{label}="{value}"}}': number for value, number in numbers.items()}


def pools(decode: float, prefill: float) -> Samples:
    """One for each model and role."""
    return {
        '{model_name="m1", dynamo_component="decode"}': decode,
        '{model_name="m2", dynamo_component="prefill"}': prefill,
    }


def heat(title: str, times: int, *bounds: str) -> Answer:
    """Up to each bound, and above, 240 times what comes in a second. times: of what the fleet has."""
    counts = zip((*bounds, "+Inf"), (38_400, 86_400, 94_080, 96_000, 96_000), strict=True)
    return Answer(title, "{{le}}", {f'{{le="{bound}"}}': times * count for bound, count in counts})


def quantiles(title: str, p50: float, p95: float, p99: float) -> tuple[Answer, ...]:
    """Three lines of one panel."""
    numbers = {"p50": p50, "p95": p95, "p99": p99}
    return tuple(Answer(title, legend, one(number)) for legend, number in numbers.items())
