"""Row 15 over HTTP: a slice of ``make fuzz``, and that its judge would see what it looks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fuzz.bodies import CHAT, COMPLETIONS, Body
from tests.fuzz.over_http import Reply, attack_frontend, flaws_of_reply
from tests.fuzz.workers import write_tiny_model

if TYPE_CHECKING:
    from tests.e2e.engines import Served
    from tests.faults.figures import Figures

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BODIES, SEED = 500, 15
REFUSED = [{"outcome": "refused"}]


def test_hostile_bodies_break_no_promise(served: Served, tmp_path: Path, figures: Figures) -> None:
    """Every one is answered, no mistake of a client becomes a 5xx of ours, and the worker is as before."""
    model = write_tiny_model(tmp_path / "tiny")
    findings = attack_frontend(tmp_path / "stack", served, model, BODIES, SEED, lambda _line: None)
    assert findings.violations == []
    assert findings.health_polls > 0
    assert findings.outcomes["completed"] > BODIES // 20
    assert findings.outcomes["refused"] > BODIES // 50
    value = f"0 of {findings.requests} ({findings.outcomes['refused']} refused by the worker)"
    figures.record(row=15, what="hostile bodies that break a promise", value=value, goal="0")


def reply(status: int, text: str, route: str = CHAT, *, is_stream: bool = False) -> Reply:
    return Reply(1, Body(route, b"", is_stream=is_stream), status, text)


@pytest.mark.parametrize(
    ("bad", "told", "flaw"),
    [
        (reply(500, "{}"), REFUSED, "for a client's mistake"),
        (reply(0, "ServerDisconnected"), [], "no answer"),
        (reply(200, 'data: {"choices":[{"delta":{"content":"a"}}]}', is_stream=True), [], "a silent end"),
        (reply(200, '{"choices":[{"finish_reason":"stop"}]}'), REFUSED, "served, and the worker says"),
        (reply(500, "{}"), [{"outcome": "failed", "error": "KeyError"}], "the worker says failed"),
    ],
)
def test_the_judge_sees_what_it_looks_for(bad: Reply, told: list[dict[str, Any]], flaw: str) -> None:
    """Each broken promise has its sentence."""
    assert any(flaw in found for found in flaws_of_reply(bad, told))


def test_the_judge_lets_pass_what_is_the_frontends() -> None:
    """A 5xx of a route that hides codes, or of a frontend that never asked the worker, is no flaw of ours."""
    assert flaws_of_reply(reply(500, "{}", COMPLETIONS), REFUSED) == []
    assert flaws_of_reply(reply(500, "{}"), []) == []
    forced = Reply(1, Body(CHAT, b'{"tool_choice": "required"}', is_stream=False), 500, "{}")
    assert flaws_of_reply(forced, REFUSED) == []
