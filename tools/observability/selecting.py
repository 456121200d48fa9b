"""Expressions that every row uses: whose series, how fast, and which quantile."""

from __future__ import annotations

from tools.observability.panels import Query

# A rolling update of Dynamo's operator ends the namespace of each generation in eight characters of a hash.
_NAMESPACE = 'dynamo_namespace=~"$namespace(-[0-9a-f]{8})?"'
# What was recorded by rules knows no single worker, and the namespace without that end.
POOL = 'dynamo_namespace=~"$namespace", dynamo_component=~"$role", model_name=~"$model"'
WORKERS = f'{_NAMESPACE}, dynamo_component=~"$role", model_name=~"$model", instance=~"$worker"'
# pod is empty where there is no Kubernetes.
WHO = "{{instance}} {{pod}}"
BY_WORKER = "instance, pod"

QUANTILES = (0.5, 0.95, 0.99)


def ours(name: str, **own: str) -> str:
    """A series of ours with the dashboard's choice. own: its own labels; `a|b` for one of several values."""
    chosen = (f'{label}{"=~" if "|" in value else "="}"{value}"' for label, value in own.items())
    return f"dynamo_actor_{name}{{{', '.join((*chosen, WORKERS))}}}"


def or_none(expression: str) -> str:
    """0 where nobody is left who could say a number: a count of nobody is nought, not unknown."""
    return f"{expression} or vector(0)"


def of_others(series: str) -> str:
    """A series of the framework or an engine, of the chosen workers only."""
    return f"{series} and on (job, instance) {ours('build_info')}"


def of_our_jobs(series: str) -> str:
    """A series of who may not show us anything yet, or any more: of all that is scraped with our workers."""
    return f"{series} and on (job) group by (job) (last_over_time({ours('build_info')}[1h]))"


def rate(name: str, **own: str) -> str:
    """How fast a counter of ours rises, per second."""
    return f"rate({ours(name, **own)}[$__rate_interval])"


def rise(name: str, **own: str) -> str:
    """By how much a counter of ours rises between two points of a graph, all chosen workers together."""
    return f"sum(increase({ours(name, **own)}[$__rate_interval]))"


def total_rate(name: str, by: str = "", **own: str) -> str:
    """How fast it rises for all chosen workers together, or by labels."""
    return f"sum{f' by ({by})' if by else ''} ({rate(name, **own)})"


def quantile(share: float, histogram: str, by: str = "", **own: str) -> str:
    """Of a histogram, over all chosen workers or by labels."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) ({rate(f'{histogram}_bucket', **own)}))"


def quantiles(histogram: str) -> tuple[Query, ...]:
    """Half, nearly all, and the worst of a hundred."""
    return tuple(Query(quantile(share, histogram), f"p{share * 100:g}") for share in QUANTILES)


def heat(histogram: str, **own: str) -> tuple[Query, ...]:
    """How many values lay between two bounds."""
    buckets = ours(f"{histogram}_bucket", **own)
    return (Query(f"sum by (le) (increase({buckets}[$__rate_interval]))", "{{le}}"),)
