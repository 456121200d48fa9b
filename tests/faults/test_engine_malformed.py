"""An engine that says what is no token: that request fails, its worker and its neighbours go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.hostile_engine import MALFORMED, seed_of
from tests.faults.load import Kind, Load
from tests.faults.striking import OTHERS, incomplete

if TYPE_CHECKING:
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EACH = 4


def test_malformed_tokens_of_every_kind_end_their_own_request(
    new_stack: StackFactory, figures: Figures
) -> None:
    """Row 3: text, negative, beyond the vocabulary, a truth value, a fraction, nothing, no list, more."""
    stack = new_stack()
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        others = load.start(Kind.PLAIN, OTHERS, max_tokens=200)
        load.wait_tokens(5, others)
        hit = []
        for fault in MALFORMED:
            hit += load.start(Kind.PLAIN, EACH, max_tokens=100, seed=seed_of(fault))
        load.finish()
    assert [str(answer) for answer in hit if not answer.is_error or not answer.is_exact] == []
    assert incomplete(others) == []
    assert worker.child.exit_code is None
    state = worker.wait_status(lambda state: state["in_flight"] == 0)
    assert state["state"] == "serving"
    assert state["outcomes"]["failed"] == len(hit)
    kinds = f"{len(MALFORMED)} kinds x {EACH}"
    figures.record(
        row=3, what=f"worker crashes ({kinds})", value=str(int(worker.child.exit_code is not None)), goal="0"
    )
    figures.record(row=3, what="others lost", value=f"{len(incomplete(others))} of {OTHERS}", goal="0")
