"""The soak's judge: what a client saw and what the worker says must fit, and the lines fill the counters."""

from __future__ import annotations

import json

import pytest

from tests.e2e.request_lines import trace_id
from tests.faults.load import Kind
from tests.soak.books import compare
from tests.soak.clients import Told, View
from tests.soak.samples import Sample, slope_mb_per_h

ENGINE_ERROR = "out of memory for this request"


def line(number: int, outcome: str, error: str | None = None) -> str:
    fields = {"message": "request.ended", "outcome": outcome, "trace_id": trace_id(number), "error": error}
    return json.dumps({"message": json.dumps(fields)})


def counted(**outcomes: int) -> dict[str, int]:
    return {**dict.fromkeys(("completed", "cancelled", "failed", "stalled"), 0), **outcomes}


def test_books_that_balance_have_no_flaw() -> None:
    """Every view beside the outcome that explains it."""
    told = [
        Told(1, Kind.PLAIN, View.EXACT),
        Told(2, Kind.PLAIN, View.LEFT),
        Told(3, Kind.PLAIN, View.ERROR, "500"),
        Told(4, Kind.UNARY, View.LEFT),
    ]
    log = [line(1, "completed"), line(2, "cancelled"), line(3, "failed", ENGINE_ERROR)]
    found = compare(told, log, counted(completed=5), counted(completed=6, cancelled=1, failed=1))
    assert found.flaws == []
    assert found.table["left", "never seen"] == 1


@pytest.mark.parametrize(
    ("view", "outcome"),
    [
        (View.SILENT, "completed"),
        (View.WRONG, "completed"),
        (View.HUNG, "completed"),
        (View.ERROR, "completed"),
        (View.EXACT, "failed"),
        (View.EXACT, "interrupted"),
        (View.LEFT, "refused"),
        (View.STALLED, "completed"),
        (View.STALLED_LONG, "cancelled"),
    ],
)
def test_a_view_that_does_not_fit_is_a_flaw(view: View, outcome: str) -> None:
    """A silent end, wrong tokens or no end never fit; the others only with their own outcomes."""
    log = [line(1, outcome, ENGINE_ERROR)]
    found = compare([Told(1, Kind.PLAIN, view)], log, {outcome: 0}, {outcome: 1})
    assert len(found.flaws) == 1


def test_a_request_that_the_worker_never_told_of_is_a_flaw() -> None:
    """Its client saw an answer, and no line says so."""
    assert compare([Told(1, Kind.PLAIN, View.EXACT)], [], counted(), counted()).flaws


def test_an_error_that_was_not_injected_is_a_flaw() -> None:
    """The engine of the soak fails with one text; another one is a fault of ours."""
    log = [line(1, "failed", "the engine ended without a reason")]
    found = compare([Told(1, Kind.PLAIN, View.ERROR, "500")], log, counted(), counted(failed=1))
    assert len(found.flaws) == 1


def test_counters_that_say_otherwise_are_a_flaw() -> None:
    """What the worker counts is what its lines say."""
    found = compare(
        [Told(1, Kind.PLAIN, View.EXACT)], [line(1, "completed")], counted(), counted(completed=2)
    )
    assert len(found.flaws) == 1


def test_the_slope_is_that_of_the_warm_part() -> None:
    """100 MB of warm-up do not count; one MB in ten minutes is six an hour."""

    def sample(at_s: float, worker_mb: float) -> Sample:
        return Sample(at_s, worker_mb, 0.0, 1, 0, 0, 0, 0, 0, 0)

    samples = [sample(0, 0), *(sample(60 * i, 100 + i / 10) for i in range(1, 11))]
    assert slope_mb_per_h(samples) == pytest.approx(6.0)
