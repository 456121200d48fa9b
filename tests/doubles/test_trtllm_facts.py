"""Promises of the double's shape: it has what the committed facts say, by introspection."""

import copy
import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from tests.doubles.own_metrics import without_own_metrics
from tests.doubles.trtllm_fact_source import OVERRULED, differences, facts_of, written
from tests.doubles.trtllm_facts import (
    EVENTS,
    Facts,
    broken_class,
    broken_enum,
    broken_function,
    found_at,
    read_facts,
    unknown_keys,
)
from tests.doubles.trtllm_site import double_on_path

FACTS = read_facts()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    with double_on_path():
        yield


@pytest.mark.parametrize("name", FACTS["classes"])
def test_a_class_has_the_fields_and_methods_of_the_facts(name: str) -> None:
    """Fields, defaults, parameters and bases are those that were read; no others where that is exact."""
    assert list(broken_class(FACTS["classes"][name])) == []


@pytest.mark.parametrize("name", FACTS["functions"])
def test_a_function_takes_the_parameters_of_the_facts(name: str) -> None:
    """A call by keyword means here what it means in the library."""
    assert list(broken_function(FACTS["functions"][name])) == []


@pytest.mark.parametrize("name", FACTS["enums"])
def test_an_enum_has_the_members_of_the_facts(name: str) -> None:
    """All members are there, with the values that are known."""
    assert list(broken_enum(FACTS["enums"][name])) == []


def test_the_release_is_that_of_the_facts() -> None:
    """The package and its distribution say the release that the facts are about."""
    from importlib.metadata import distribution

    said = found_at("tensorrt_llm.__version__"), distribution("tensorrt-llm").version
    assert said == (FACTS["release"], FACTS["release"])


def test_the_collector_registers_the_metrics_of_the_facts() -> None:
    """Every name is registered at construction, but for configurations, which come when they are logged."""
    with without_own_metrics():
        before = {*REGISTRY._collector_to_names}
        collector = found_at("tensorrt_llm.metrics.MetricsCollector")({"model_name": "m"})
        collector.log_config_info(*({"key": "value"} for _ in range(4)))
        names = {
            name
            for each in {*REGISTRY._collector_to_names} - before
            for name in REGISTRY._collector_to_names[each]
        }
        assert set(FACTS["metrics"]) - names == set()


def _without_a_field(facts: Facts) -> None:
    facts["fields"].append({"name": "not_there"})


def _with_another_default(facts: Facts) -> None:
    facts["fields"][0] = {"name": facts["fields"][0]["name"], "default": "another"}


def _with_another_order(facts: Facts) -> None:
    facts["fields"].reverse()


def _with_another_place(facts: Facts) -> None:
    facts["at"].append("tensorrt_llm.llmapi.SamplingParams")


def _with_a_parameter_more(facts: Facts) -> None:
    facts["methods"]["get_request_type"]["parameters"].append({"name": "more", "kind": "keyword_only"})


@pytest.mark.parametrize(
    "change",
    [
        _without_a_field,
        _with_another_default,
        _with_another_order,
        _with_another_place,
        _with_a_parameter_more,
    ],
)
def test_a_difference_to_an_exact_entry_is_found(change: Callable[[Facts], None]) -> None:
    """The comparison sees a missing field, a default, an order, a place and a parameter."""
    facts = copy.deepcopy(FACTS["classes"]["DisaggregatedParams"])
    change(facts)
    assert list(broken_class(facts)) != []


def test_what_more_the_double_has_is_no_difference_where_the_facts_are_not_exact() -> None:
    """A field that later revisions have may be here when the entry is not from the very release."""
    facts = copy.deepcopy(FACTS["classes"]["SamplingParams"])
    del facts["fields"][3]
    assert list(broken_class(facts)) == []


def test_an_unknown_key_of_a_row_or_an_event_is_found() -> None:
    """Keys are known at every depth; windows go by their own sizes."""
    row = {"iter": 1, "kvCacheIterationStats": {"4096": {"iterReusedBlocks": 1, "reused": 2}}}
    event = {"event_id": 0, "data": {"type": "stored", "blocks": [{"block_hash": 1}, {"hash": 2}]}}
    assert [*unknown_keys(row, FACTS["row"])] == [".kvCacheIterationStats.4096.reused"]
    assert [*unknown_keys(event, FACTS["events"]["stored"])] == [".data.blocks[].hash"]


def _sheet() -> Facts:
    exact = {"provenance": {"exact_rc22": True}}
    method = {
        "params": [{"name": "self", "default": "<required>", "kind": "positional_or_keyword"}],
        "async": False,
    }
    fields = [
        {"name": "a", "default": "<required>"},
        {"name": "b", "default": "<B()>"},
        {"name": "c", "default": 1},
    ]
    thing = {
        "import": "x.A",
        "aliases": ["y.A", "z (unverified)"],
        "fields": fields,
        "methods": {"go": method},
    } | exact
    collector = {"import": "x.M", "metrics": {"all": ["m"]}} | exact
    return {
        "classes": {"A": thing, "MetricsCollector": collector},
        "functions": {},
        "enums": {"E": {"import": "x.E", "members": {"ONE": 1, "TWO": "?"}}, "reason": ["stop"]},
        "events": {
            "iteration_stats": {"top_level": {"iter": "int"}},
            "kv_cache": {kind: {"data": "x"} for kind in EVENTS},
        },
    }


def test_a_sheet_becomes_facts_without_its_prose() -> None:
    """Unverified places, annotations and notes stay behind; required, made and constant values differ."""
    facts = facts_of(_sheet())
    assert facts["classes"]["A"]["at"] == ["x.A", "y.A"]
    assert facts["classes"]["A"]["fields"] == [
        {"name": "a"},
        {"name": "b", "made_by": "B"},
        {"name": "c", "default": 1},
    ]
    assert facts["enums"] == {"E": {"at": ["x.E"], "members": ["ONE", "TWO"], "values": {"ONE": 1}}}
    assert facts["row"] == {"iter": None}


def test_a_change_of_the_sheet_is_named_by_its_path() -> None:
    """Where committed facts and a sheet differ, the line says where."""
    sheet = _sheet()
    before = facts_of(sheet)
    sheet["classes"]["A"]["fields"].pop()
    (line,) = differences(before, facts_of(sheet))
    assert line.startswith("/classes/A/fields: ")


def test_the_release_overrules_the_sheet() -> None:
    """By name: a field that it lacks, one that is gone, and another default; all else is the sheet's."""
    sheet = _sheet()
    entry = {"import": "x.T", "provenance": {"exact_rc22": False}}
    fields = [{"name": name, "default": 0} for name in ("disable_flashinfer_sampling", "stream_interval")]
    sheet["classes"]["TorchLlmArgs"] = entry | {"fields": fields}
    fields = [{"name": "use_kv_cache_manager_v2", "default": False}]
    sheet["classes"]["KvCacheConfig"] = entry | {"fields": fields}
    classes = facts_of(sheet)["classes"]
    assert classes["TorchLlmArgs"]["fields"] == [
        {"name": "stream_interval", "default": 0},
        {"name": "disable_mm_encoder", "default": False},
    ]
    assert classes["KvCacheConfig"]["fields"] == [{"name": "use_kv_cache_manager_v2", "default": "auto"}]
    assert (classes["KvCacheConfig"]["exact"], classes["TorchLlmArgs"]["exact"]) == (True, False)


def test_what_is_overruled_is_in_the_committed_facts() -> None:
    """None of it is left over from a sheet that was right later."""
    for name, changes in OVERRULED.items():
        known = {field["name"]: field for field in FACTS["classes"][name]["fields"]}
        for field, value in changes.items():
            assert known.get(field) == (None if value is None else {"name": field} | value)


@given(JSON)
def test_facts_are_written_as_json(facts: object) -> None:
    """The layout of the committed file changes nothing of its content."""
    assert json.loads(written(facts)) == facts
