"""The dashboard, held against what a worker serves, and what an eye can take."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from typing import Any

import pytest

from protocols.telemetry import WorkerState
from tests.deploy.dashboard_file import (
    Place,
    dashboard,
    expressions,
    filled,
    notes,
    panels,
    place_of,
    variables_of,
)
from tests.deploy.promql import asked_by, grouping_labels, metrics_of
from tests.deploy.rule_files import RECORDED, REPOSITORY
from tests.deploy.served_metrics import (
    BRIDGE_LABELS,
    FREE_LABELS,
    OF_OTHERS,
    SCRAPE_LABELS,
    family_of,
    served,
)
from tools.observability.__main__ import stale

ROWS = ["Overview", "Requests", "Actors", "Engine", "Lifecycle and drain", "Process"]
OPERATIONS = REPOSITORY / "docs" / "operations.md"
# On no panel: the same figures a second time, for dashboards that were made for TensorRT-LLM.
SECOND_NAMES = "dynamo_actor_trtllm_"
# Quoted in the runbooks, and no panels.
NO_PANELS = {"Dynamo actor worker"}


def title_of(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def test_what_is_committed_is_what_the_generator_writes() -> None:
    """The dashboard, and both objects of Kubernetes: python -m tools.observability."""
    assert stale() == []


def test_it_is_found_under_a_name_that_stays() -> None:
    """Links, bookmarks and the provisioning know it by its uid; the version of its form is Grafana 12's."""
    page = dashboard()
    assert (page["uid"], page["schemaVersion"], page["id"]) == ("dynamo-actor-worker", 41, None)
    assert {"dynamo", "actor-worker", "llm"} == set(page["tags"])


def test_rows_lead_from_what_clients_see_down_to_the_process() -> None:
    """In this order, all of them open."""
    headlines = [panel for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert [panel["title"] for panel in headlines] == ROWS
    assert not any(panel["collapsed"] for panel in headlines)


def test_no_number_is_given_twice() -> None:
    """Links to a panel go by its number."""
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_no_title_is_there_twice() -> None:
    """Runbooks send people to a panel by its title."""
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles)


def test_no_panel_lies_on_another_or_hangs_out() -> None:
    """Each in 24 columns, and below the headline of its row."""
    places = [place_of(panel) for panel in dashboard()["panels"]]
    assert all(0 <= place.left < place.right <= 24 for place in places)
    assert not [pair for pair in combinations(places, 2) if pair[0].is_over(pair[1])]
    tops = [place.top for place in places]
    assert all(above <= below for above, below in pairwise(tops))


def test_places_that_share_a_cell_are_found() -> None:
    """The test above can fail."""
    assert Place(0, 0, 8, 8).is_over(Place(7, 7, 15, 15))
    assert not Place(0, 0, 8, 8).is_over(Place(8, 0, 16, 8))


@pytest.mark.parametrize("panel", panels(), ids=title_of)
def test_every_panel_says_what_is_normal_and_when_to_look_closer(panel: dict[str, Any]) -> None:
    """Whoever sees it for the first time at night can judge it."""
    assert re.fullmatch(r".+\. Normal: .+\. Look closer when .+\.", panel["description"])
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_asks_only_for_what_there_is(expression: str) -> None:
    """Names, labels, and values of labels; of a worker, of rules, or of the few of others."""
    asked_names = metrics_of(filled(expression))
    assert asked_names - served().keys() - RECORDED - OF_OTHERS.keys() == set()
    known = {label for name in asked_names for label in {**served().get(name, {})}}
    known |= {label for name in asked_names for label in OF_OTHERS.get(name, ())}
    assert grouping_labels(filled(expression)) <= known | BRIDGE_LABELS | SCRAPE_LABELS
    for asked in asked_by(filled(expression)):
        own = served().get(asked.metric, {})
        for match in asked.matches:
            assert match.label in own or match.label in FREE_LABELS | OF_OTHERS.get(asked.metric, frozenset())
            if match.label in own:
                assert match.words
                assert set(match.words) <= own[match.label]


@pytest.mark.parametrize("expression", expressions())
def test_every_rate_is_taken_over_what_the_dashboard_shows(expression: str) -> None:
    """`$__rate_interval` fits the scrape and the zoom; fixed windows are for what happens once a rollout."""
    windows = set(re.findall(r"\[([^\]]+)\]", expression))
    if "rate(" in expression or "increase(" in expression:
        assert windows & {"$__rate_interval", "$__range", "1h"}
    if re.search(r"(?<![a-z_])rate\(", expression):
        assert "$__rate_interval" in windows


def test_every_figure_of_ours_is_on_a_panel_or_has_another_name_there() -> None:
    """Whoever looks for it finds it."""
    shown = {name for expression in expressions() for name in metrics_of(filled(expression))}
    families = {family_of(name) for name in served() if not name.startswith(SECOND_NAMES)}
    assert families - {family_of(name) for name in shown} == set()


def test_every_variable_that_is_used_exists_and_every_one_is_used() -> None:
    """In a query, or in a link."""
    links = [link["url"] for panel in panels() for link in panel["fieldConfig"]["defaults"]["links"]]
    sources = {"${datasource}"}
    used = {name for text in [*expressions(), *links, *sources] for name in variables_of(text)}
    assert used == {variable["name"] for variable in dashboard()["templating"]["list"]}


def test_a_choice_of_all_needs_no_list_of_all() -> None:
    """A worker that came after the page was opened is among "All"."""
    choices = [one for one in dashboard()["templating"]["list"] if one["type"] == "query"]
    assert [one["name"] for one in choices] == ["namespace", "model", "role", "worker"]
    assert all(one["includeAll"] and one["allValue"] == ".+" and one["multi"] for one in choices)


def test_the_way_from_a_graph_to_one_request_is_written_down() -> None:
    """By traces, by the log, and without either; what it names is there."""
    (note,) = notes()
    page = OPERATIONS.read_text(encoding="utf-8")
    assert all(f"**{way}**" in note for way in ("Traces", "Logs", "Without either"))
    for named in ("`trace_id`", "`request.ended`"):
        assert named in note
        assert named in page
    assert {f"--{which}" for which in ("slowest", "failed", "last")} <= set(re.findall(r"--[a-z]+", note))


def test_clients_that_leave_are_never_drawn_as_errors() -> None:
    """Nor are frontends that have enough: both have colours of their own, and neither is in the shares."""
    (panel,) = (panel for panel in panels() if panel["title"] == "How requests ended")
    colours = {
        override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
    }
    assert colours["failed"] == "red"
    assert {colours["cancelled"], colours["stopped_by_frontend"]} & {"red", "orange", "yellow"} == set()
    named = {
        word
        for expression in expressions()
        for asked in asked_by(filled(expression))
        for match in asked.matches
        for word in match.words
    }
    assert "cancelled" not in named


def test_the_life_of_workers_has_a_word_for_every_state() -> None:
    """And a number for each in its expression."""
    (panel,) = (panel for panel in panels() if panel["title"] == "Life of workers")
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    words = {int(value): word["text"] for value, word in mapping["options"].items()}
    expression = panel["targets"][0]["expr"]
    numbered = {int(number): state for state, number in re.findall(r'state="(\w+)".*?} \* (\d+)', expression)}
    assert words == numbered
    assert set(words.values()) == {state.value for state in WorkerState}


def test_runbooks_send_nobody_to_a_panel_that_is_not_there() -> None:
    """Titles stand in quotes there, and begin with a capital."""
    _, found, text = OPERATIONS.read_text(encoding="utf-8").partition("\n## Runbooks\n")
    assert found
    named = {name.replace("\n", " ") for name in re.findall(r'"([A-Z][^"`]+)"', text)}
    titles = {panel["title"] for panel in panels()}
    assert named - NO_PANELS - titles == set()
    assert named & titles
