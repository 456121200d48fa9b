"""One request's fault in the engine ends that request with an error, and touches nobody else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.doubles.hostile_engine import Fault, seed_of
from tests.faults.load import Kind, Load
from tests.faults.striking import OTHERS, fault_s, incomplete

if TYPE_CHECKING:
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.each_engine, pytest.mark.timeout(300)]


@pytest.mark.parametrize("fault", [Fault.FAILS, Fault.REFUSES])
def test_an_engine_that_fails_one_request_harms_no_other(
    new_stack: StackFactory, figures: Figures, fault: Fault
) -> None:
    """Row 1: one typed error for it, soon; 63 others complete and exact; its slot is free again."""
    stack = new_stack()
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        others = load.start(Kind.PLAIN, OTHERS, max_tokens=150)
        load.wait_tokens(10, others)
        (hit,) = load.start(Kind.PLAIN, max_tokens=150, seed=seed_of(fault))
        load.finish()
    assert hit.is_error
    assert hit.is_exact
    assert incomplete(others) == []
    worker.wait_status(lambda state: state["in_flight"] == 0)
    assert worker.status()["outcomes"]["failed"] == 1
    causes = {Fault.FAILS: "out of memory for this request", Fault.REFUSES: "the engine refused the request"}
    assert sum(causes[fault] in line for line in worker.log().splitlines()) == 1
    _, metrics = worker.system.get("/metrics")
    counted = [line for line in metrics.splitlines() if line.startswith("dynamo_actor_requests_total{")]
    assert [line.split()[-1] for line in counted if 'outcome="failed"' in line] == ["1.0"]
    lost = len(incomplete(others))
    figures.record(row=1, what=f"engine {fault.value}: others lost", value=f"{lost} of {OTHERS}", goal="0")
    if fault is not Fault.REFUSES:
        at_s = fault_s(worker, fault)
        assert at_s is not None
        told_s = (hit.ended_s or time.monotonic()) - at_s
        figures.record(
            row=1, what="from the fault to its client's error", value=f"{told_s * 1000:.0f} ms", goal="100 ms"
        )
