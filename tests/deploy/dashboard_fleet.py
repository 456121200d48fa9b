"""A fleet for the dashboard's questions: all series of who is chosen, and of who is not."""

from __future__ import annotations

from collections.abc import Iterator

from tests.deploy.dashboard_loads import (
    ALERTS,
    DRAINS,
    HISTOGRAMS,
    MORE,
    OF_OTHERS,
    POOLS,
    POOLS_NOT_CHOSEN,
    RECORDED,
    RISING,
    STEADY,
    UP_TO_A,
    UP_TO_B,
)
from tests.deploy.dashboard_series import Series, ended, joined, ours, rising, rising_long_ago, steady
from tests.deploy.dashboard_workers import (
    GONE,
    JOB,
    LOADING,
    LONG_GONE,
    NO_CACHE,
    NOBODY_CHOSEN,
    NOT_CHOSEN,
    OF_STATES,
    STATES,
    STRANGERS,
    A,
    B,
    Worker,
)


def chosen() -> list[Series]:
    """All that the figures are made of, and nobody else."""
    return [
        *_figures(A, 0),
        *_figures(B, 1),
        *_of_states(),
        *_of_comers_and_goers(),
        *_recorded(POOLS),
        *(steady("ALERTS", labels, value) for labels, value in ALERTS),
        *(
            rising("dynamo_frontend_model_migration_total", f'job="dynamo-frontend", model="{model}"', rate)
            for model, rate in (("m1", 2), ("m9", 4))
        ),
    ]


def not_chosen() -> list[Series]:
    """Their neighbours."""
    jobs = {worker.job for worker in (*NOT_CHOSEN, NOBODY_CHOSEN)} - {JOB}
    return [
        *(one for worker in NOT_CHOSEN for one in _figures(worker, 0, MORE)),
        *(one for job in sorted(jobs) for one in _loading(Worker("new-there:9090", job=job))),
        *(steady(ours("build_info"), worker.labels, 1) for worker in STRANGERS),
        *_recorded(POOLS_NOT_CHOSEN),
    ]


def alone() -> list[Series]:
    """One that serves, of whom more were moved than had been interrupted: scraped between two counters."""
    rates = (
        ("requests_total", 'outcome="completed"', 10),
        ("requests_total", 'outcome="interrupted"', 2),
        ("requests_moved_total", "", 3),
    )
    return [
        *(rising(ours(name), joined(own, A.labels), rate) for name, own, rate in rates),
        *(_in_state(A, state, "serving") for state in STATES),
    ]


def _figures(worker: Worker, column: int, more: int = 0) -> Iterator[Series]:
    """Of a worker that serves. column: 0 as `a`, 1 as `b`."""
    build = ("1.0", "torch", "1.4.2") if column == 0 else ("1.1", "trtllm", "1.6.1")
    own = 'version="{}", engine="{}", framework_version="{}"'.format(*build)
    yield steady(ours("build_info"), f"{own}, {worker.labels}", 1)
    for name, own, *values in STEADY:
        yield steady(ours(name), joined(own, worker.labels), values[column] + more)
    for name, own, *rates in RISING:
        yield rising(ours(name), joined(own, worker.labels), rates[column] + more)
    for name, own, bounds, times in HISTOGRAMS:
        for series, rate in _counts(bounds, column, times):
            labels = joined(series[1], joined(own, worker.labels))
            yield rising(ours(f"{name}_{series[0]}"), labels, rate + more)
    for bound, count in _up_to(DRAINS, column):
        labels = f'le="{bound}", {worker.labels}'
        yield rising_long_ago(ours("drain_seconds_bucket"), labels, count + more)
    for name, own, of_a, of_b, _ in OF_OTHERS:
        yield steady(name, joined(own, worker.scraped), (of_a, of_b)[column] + more)


def _counts(bounds: tuple[str, ...], column: int, times: int) -> Iterator[tuple[tuple[str, str], int]]:
    """The end of each name, the label with the bound, and so many a second."""
    for bound, rate in _up_to(bounds, column):
        yield ("bucket", f'le="{bound}"'), times * rate
    yield ("count", ""), times * 200
    yield ("sum", ""), times * 77


def _up_to(bounds: tuple[str, ...], column: int) -> Iterator[tuple[str, int]]:
    return zip((*bounds, "+Inf"), (UP_TO_A, UP_TO_B)[column], strict=True)


def _of_states() -> Iterator[Series]:
    for worker, now in OF_STATES:
        yield from (_in_state(worker, state, now) for state in STATES)
    for state in ("used", "cached", "free"):
        yield steady(ours("kv_blocks"), f'state="{state}", {NO_CACHE.labels}', 0)


def _in_state(worker: Worker, state: str, now: str) -> Series:
    return steady(ours("worker_state"), f'state="{state}", {worker.labels}', int(state == now))


def _of_comers_and_goers() -> Iterator[Series]:
    """One that loads has the framework's figures only; of those that are gone, the scrape's own is left."""
    for worker in (*LOADING, Worker("late:9090", job=LONG_GONE.job)):
        yield from _loading(worker)
    for worker, minutes in ((GONE, 50), (LONG_GONE, 65)):
        yield ended(ours("build_info"), worker.labels, minutes)
        yield steady("up", worker.scraped, 0)


def _loading(worker: Worker) -> Iterator[Series]:
    for name, own, *_, value in OF_OTHERS:
        if value is not None:
            yield steady(name, joined(own, worker.scraped), value)


def _recorded(pools: tuple[tuple[str, int], ...]) -> Iterator[Series]:
    for name, share in RECORDED:
        for labels, times in pools:
            yield steady(name, labels, share * times)
