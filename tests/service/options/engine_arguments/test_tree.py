"""Merging arguments: the strong tree wins, objects go into each other, and every loser is named."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.options.engine_arguments.tree import (
    Leaf,
    Tree,
    branch,
    find,
    given_by,
    grow,
    leaves,
    masked,
    merge,
    plain,
    show,
    value_at,
)

_KEYS = st.sampled_from(["a", "b", "c"])
_SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y"])
_VALUES = st.recursive(
    _SCALARS | st.lists(_SCALARS, max_size=2),
    lambda inner: st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_DOCUMENTS = st.dictionaries(_KEYS, _VALUES, max_size=3)


def _merged(weak: dict[str, object], strong: dict[str, object]) -> tuple[Tree, list[str]]:
    losers: list[str] = []
    return merge(grow("weak.yaml", weak), grow("--strong", strong), losers), losers


@given(_DOCUMENTS)
def test_a_document_comes_back_as_it_was(document: dict[str, object]) -> None:
    """Growing a tree and taking its plain values changes nothing."""
    assert plain(grow("file", document)) == document


@given(_DOCUMENTS, _DOCUMENTS)
def test_everything_strong_is_in_the_result(weak: dict[str, object], strong: dict[str, object]) -> None:
    """Every value of the strong tree, at its place; an empty object says nothing about what is in it."""
    merged, _ = _merged(weak, strong)
    for path, leaf in leaves(grow("--strong", strong)):
        if leaf.value != {}:
            assert value_at(merged, path) == leaf.value


@given(_DOCUMENTS, _DOCUMENTS)
def test_what_only_the_weak_tree_says_stays(weak: dict[str, object], strong: dict[str, object]) -> None:
    """A value whose whole way the strong tree does not touch is kept."""
    merged, _ = _merged(weak, strong)
    for path, leaf in leaves(grow("weak.yaml", weak)):
        if leaf.value != {} and not _touches(strong, path):
            assert value_at(merged, path) == leaf.value


def _touches(document: object, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(document, dict):
            return True
        if key not in document:
            return False
        document = document[key]
    return True


@given(_DOCUMENTS, _DOCUMENTS)
def test_losers_are_exactly_the_values_that_are_gone(
    weak: dict[str, object], strong: dict[str, object]
) -> None:
    """One line for each place where another value stands now, and none for equal ones."""
    merged, losers = _merged(weak, strong)
    named = [line.partition(":")[0] for line in losers]
    assert len(named) == len(set(named))
    gone = [
        path
        for path, leaf in leaves(grow("weak.yaml", weak))
        if leaf.value != {} and value_at(merged, path) != leaf.value
    ]
    for path in gone:
        assert any(path == name or path.startswith(f"{name}.") for name in named)
    for name in named:
        assert value_at(grow("weak.yaml", weak), name) != value_at(merged, name)


@given(_DOCUMENTS)
def test_merging_a_tree_with_itself_changes_and_warns_nothing(document: dict[str, object]) -> None:
    """Saying the same twice is no contradiction."""
    merged, losers = _merged(document, document)
    assert plain(merged) == document
    assert losers == []


@given(_DOCUMENTS, _DOCUMENTS)
def test_merging_again_changes_nothing(weak: dict[str, object], strong: dict[str, object]) -> None:
    """The strong tree over the result is the result."""
    merged, _ = _merged(weak, strong)
    losers: list[str] = []
    assert plain(merge(merged, grow("--strong", strong), losers)) == plain(merged)
    assert losers == []


@given(_DOCUMENTS, _DOCUMENTS)
def test_merging_leaves_both_trees_alone(weak: dict[str, object], strong: dict[str, object]) -> None:
    """Also when the plain values of the result are changed afterwards."""
    below, above = grow("weak.yaml", weak), grow("--strong", strong)
    before = copy.deepcopy((below, above))
    result = plain(merge(below, above, []))
    assert isinstance(result, dict)
    for value in result.values():
        if isinstance(value, list):
            value.append("changed")
        elif isinstance(value, dict):
            value.clear()
    assert (below, above) == before


def test_a_loser_is_named_with_both_givers() -> None:
    """The line an operator reads."""
    _, losers = _merged({"a": 64, "b": {"c": [1]}}, {"a": 8, "b": None})
    assert losers == [
        "a: 8 of --strong wins over 64 of weak.yaml",
        'b: null of --strong wins over {"c": [1]} of weak.yaml',
    ]


def test_defaults_lose_in_silence() -> None:
    """Nobody gave them."""
    losers: list[str] = []
    merge(branch("a.b", Leaf(1)), branch("a.b", Leaf(2, "--b")), losers)
    assert losers == []


def test_places_are_found_by_their_path() -> None:
    """Or nothing is there."""
    tree = branch("a.b", Leaf(1, "--b"))
    assert (value_at(tree, "a.b"), value_at(tree, "a.c"), value_at(tree, "a.b.c")) == (1, None, None)
    assert find(tree, "x") is None
    assert given_by(tree) == "--b"


def test_objects_with_keys_that_are_no_texts_stay_whole() -> None:
    """A schedule by batch size is one value."""
    tree = grow("f", {"speculative_config": {"draft_len_schedule": {1: 4, 8: 2}}})
    assert value_at(tree, "speculative_config.draft_len_schedule") == {1: 4, 8: 2}


def test_what_may_be_a_secret_is_masked() -> None:
    """Variables for the engine's processes; other values are shown, and long ones cut."""
    assert masked("env_overrides", {"HF_TOKEN": "hf_secret"}) == {"HF_TOKEN": "********"}
    assert masked("env_overrides.HF_TOKEN", "hf_secret") == "********"
    assert masked("env_overrides", "hf_secret") == "********"
    assert masked("model", "m") == "m"
    assert "hf_secret" not in show("env_overrides.HF_TOKEN", Leaf("hf_secret"))
    assert len(show("model", Leaf("m" * 200))) == 80


def test_an_empty_object_keeps_its_giver() -> None:
    """It switches something on, and whoever looks for it must find it."""
    tree, losers = _merged({"sleep_config": {}}, {"max_batch_size": 3})
    assert list(leaves(tree)) == [
        ("sleep_config", Leaf({}, "weak.yaml")),
        ("max_batch_size", Leaf(3, "--strong")),
    ]
    assert losers == []


@pytest.mark.parametrize(
    ("weak", "strong", "merged"),
    [
        ({"a": {}}, {"a": {"b": 1}}, [("a.b", Leaf(1, "--strong"))]),
        ({"a": {"b": 1}}, {"a": {}}, [("a.b", Leaf(1, "weak.yaml"))]),
        ({"a": {}}, {"a": {}}, [("a", Leaf({}, "--strong"))]),
    ],
)
def test_an_empty_object_says_nothing_of_what_is_in_it(
    weak: dict[str, object], strong: dict[str, object], merged: list[tuple[str, Leaf]]
) -> None:
    """Neither does it take anything away, nor is it lost."""
    tree, losers = _merged(weak, strong)
    assert list(leaves(tree)) == merged
    assert losers == []


def test_an_empty_object_that_is_filled_as_a_whole_is_no_loser() -> None:
    """A flag may stand for all of a group: it takes nothing from whoever has said nothing in it."""
    losers: list[str] = []
    weak = grow("FILE", {"kv_connector_config": {}})
    strong: Tree = {"kv_connector_config": Leaf({"a": 1}, "--flag")}
    assert plain(merge(weak, strong, losers)["kv_connector_config"]) == {"a": 1}
    assert losers == []


def test_an_empty_object_that_is_switched_off_is_a_loser() -> None:
    """Somebody gave it."""
    assert _merged({"a": {}}, {"a": None})[1] == ["a: null of --strong wins over {} of weak.yaml"]
