"""Every question of the dashboard, asked of a fleet whose figures are known: it says what titles promise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.deploy.dashboard_answer import Answer, one
from tests.deploy.dashboard_answers import ALONE, ANSWERS, CHOICES, MARKS
from tests.deploy.dashboard_file import choices, dashboard, panels
from tests.deploy.dashboard_fleet import alone, chosen, not_chosen
from tests.deploy.dashboard_promtool import Asked, Scene, differences
from tests.deploy.dashboard_workers import ALL, CHOSEN
from tests.deploy.promql import asked_by
from tests.deploy.served_metrics import OF_OTHERS, served

pytestmark = pytest.mark.timeout(120)

# A rolling update's generation is no choice of its own.
NAMESPACES = {"chat-0123abcd": "chat", "chat": "chat", "talk": "talk", "chat-eu": "chat-eu"}


def questions() -> dict[tuple[str, str], str]:
    """Each expression of a panel by its panel's title and its legend."""
    return {
        (panel["title"], target["legendFormat"]): target["expr"]
        for panel in panels()
        for target in panel["targets"]
    }


def marks() -> dict[tuple[str, str], str]:
    """Each expression that marks a moment on all panels, by its name and its text."""
    return {(mark["name"], mark["textFormat"]): mark["expr"] for mark in dashboard()["annotations"]["list"]}


def boxes() -> dict[tuple[str, str], str]:
    """What each box offers, by its name and its label, as an expression: who has the label's values."""
    return {
        (choice.name, choice.label): f"group by ({choice.label}) ({choice.selector})" for choice in choices()
    }


def scenes() -> Iterator[Scene]:
    """Some of many, all there are, one alone, and nobody."""
    lines = {**questions(), **marks()}
    told = (*ANSWERS, *MARKS)
    yield Scene(
        "chosen among others",
        [*chosen(), *not_chosen()],
        CHOSEN,
        [
            *(Asked(lines[known(one)], {**one.samples, **one.beside}) for one in told),
            *(Asked(boxes()[known(one)], one.samples) for one in CHOICES),
        ],
    )
    yield Scene("all", chosen(), ALL, [Asked(lines[known(one)], one.samples) for one in told])
    yield Scene("nobody", [], ALL, [Asked(lines[known(one)], one.of_nobody) for one in told])
    yield Scene("alone", alone(), ALL, [Asked(lines[known(one)], one.samples) for one in ALONE])


def known(answer: Answer) -> tuple[str, str]:
    return answer.title, answer.legend


def test_every_question_has_its_answer() -> None:
    """Whoever adds one reckons what it should say."""
    assert [*map(known, ANSWERS)] == [*questions()]
    assert [*map(known, MARKS)] == [*marks()]
    assert [*map(known, CHOICES)] == [*boxes()]
    assert len(questions()) == sum(len(panel["targets"]) for panel in panels())


def test_every_answer_is_what_its_title_promises(tmp_path: Path) -> None:
    """With some chosen of many, with everybody, and with nobody."""
    assert differences(tmp_path, scenes()) == ""


def test_a_wrong_answer_is_found(tmp_path: Path) -> None:
    """The test above can fail."""
    asked = [Asked(questions()["Live", "Live"], one(25))]
    found = differences(tmp_path, [Scene("all", chosen(), ALL, asked)])
    assert "requests_live" in found


def test_the_fleet_shows_what_workers_show() -> None:
    """Names, labels and bounds of histograms are theirs: what nobody serves proves nothing."""
    for series in [*chosen(), *not_chosen()]:
        (asked,) = asked_by(series["series"])
        own: Mapping[str, frozenset[str]] = served().get(asked.metric, {})
        assert own or asked.metric in {*served(), *OF_OTHERS} or asked.metric.startswith("component:")
        told = {match.label: match.value for match in asked.matches}
        for label in own.keys() - {"version", "engine", "framework_version", "processor"}:
            assert told.get(label, "") in own[label], series["series"]


@pytest.mark.parametrize(("namespace", "offered"), NAMESPACES.items())
def test_generations_of_a_namespace_are_one_choice(namespace: str, offered: str) -> None:
    """And the choice finds all of them."""
    (choice,) = (one for one in choices() if one.name == "namespace")
    found = re.fullmatch(choice.pattern.strip("/"), namespace)
    assert found
    assert found[1] == offered
