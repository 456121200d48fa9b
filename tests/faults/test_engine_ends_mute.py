"""An engine that ends a request without a reason: the client is told so, it never looks like an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.hostile_engine import Fault, seed_of
from tests.faults.load import Kind, Load
from tests.faults.striking import incomplete

if TYPE_CHECKING:
    from tests.faults.conftest import StackFactory
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Requests of each kind in one round: 64 at a time, 1,024 in all.
EACH = 16
ROUNDS = 16
# Sound ones that begin with every round and outlive it.
BESIDE = 8


def test_no_answer_ends_in_silence(new_stack: StackFactory, figures: Figures) -> None:
    """Row 2: 1,024 requests of every kind, each cut off without a reason by its engine: 1,024 errors."""
    stack = new_stack(max_num_seqs=512)
    worker = stack.workers[0]
    with Load(stack.http_port, stack.model()) as load:
        others, cut = [], []
        for _ in range(ROUNDS):
            others += load.start(Kind.PLAIN, BESIDE, max_tokens=100)
            hit = []
            for kind in Kind:
                hit += load.start(kind, EACH, max_tokens=100, seed=seed_of(Fault.ENDS_MUTE))
            load.wait_ended(hit)
            cut += hit
        load.finish()
    silent = [str(answer) for answer in cut if answer.is_silent or answer.is_hung]
    assert silent == []
    assert [str(answer) for answer in cut if not answer.is_error or not answer.is_exact] == []
    assert incomplete(others) == []
    assert worker.wait_status(lambda state: state["in_flight"] == 0)["outcomes"]["failed"] == len(cut)
    figures.record(row=2, what="silent ends", value=f"{len(silent)} of {len(cut)}", goal="0")
    figures.record(row=2, what="others lost", value=f"{len(incomplete(others))} of {len(others)}", goal="0")
