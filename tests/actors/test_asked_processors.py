"""Logits processors that a request asks for by its annotations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from actors.asked_processors import LONGEST_OPTIONS, MOST_PROCESSORS, PREFIX, asked_processors
from protocols.errors import InvalidRequest
from protocols.spec import ProcessorEntry

KNOWN = ("cool", "hot.1", "a-b_c")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)
_OPTIONS = st.dictionaries(st.text(), _JSON, max_size=4)
_OTHERS = st.text().filter(lambda text: not text.startswith(PREFIX))


def refused(*annotations: str, known: tuple[str, ...] = KNOWN) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        asked_processors(annotations, known)
    assert caught.value.field == "annotations"
    return caught.value


def test_no_annotations_ask_for_nothing() -> None:
    """None, none, and those of the framework."""
    assert asked_processors(None, KNOWN) == ()
    assert asked_processors([], KNOWN) == ()
    assert asked_processors(["llm_metrics", "x-bypass-remote-prefill"], KNOWN) == ()


@given(
    st.lists(st.tuples(st.sampled_from(KNOWN), st.none() | _OPTIONS), unique_by=lambda one: one[0]), _OTHERS
)
def test_what_is_asked_for_arrives_as_it_was_written(
    asked: list[tuple[str, dict[str, Any] | None]], other: str
) -> None:
    """Names in their order, options as the JSON says; other annotations are left to the framework."""
    texts = [
        f"{PREFIX}{name}" if options is None else f"{PREFIX}{name}={json.dumps(options)}"
        for name, options in asked
    ]
    assume(all(len(text.encode()) <= LONGEST_OPTIONS for text in texts))
    entries = tuple(ProcessorEntry(name=name, options=options or {}) for name, options in asked)
    assert asked_processors([other, *texts, other], KNOWN) == entries


@given(st.lists(st.text() | st.text().map(PREFIX.__add__) | st.text().map(f"{PREFIX}cool=".__add__)))
def test_whatever_callers_write_is_taken_or_refused(annotations: list[str]) -> None:
    """Never anything but entries with known names, or InvalidRequest about the annotations."""
    try:
        entries = asked_processors(annotations, KNOWN)
    except InvalidRequest:
        return
    assert {entry.name for entry in entries} <= set(KNOWN)
    assert len(entries) == sum(text.startswith(PREFIX) for text in annotations)


@pytest.mark.parametrize("name", ["", "COOL", "cool ", " cool", "hot", "cool:", "no/such"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    """As a caller would have to write them."""
    error = refused(PREFIX + name)
    for known in KNOWN:
        assert PREFIX + known in str(error)


def test_a_worker_without_processors_says_so() -> None:
    """And how an operator gets some."""
    assert "--logits-processor" in str(refused(f"{PREFIX}cool", known=()))


@pytest.mark.parametrize(
    "options",
    [
        "",
        "x",
        "3",
        "null",
        "[]",
        '"a"',
        "{",
        '{"t": }',
        '{"t": NaN}',
        '{"t": -Infinity}',
        "{'t': 1}",
        "[" * 4000,
    ],
)
def test_options_that_are_no_json_object_are_refused(options: str) -> None:
    """With what is allowed, and without showing more than the beginning."""
    error = refused(f"{PREFIX}cool={options}")
    assert f"{PREFIX}cool={{...}} with a JSON object" in str(error)
    assert len(str(error)) < 300


def test_options_have_a_limit_in_bytes() -> None:
    """At the limit they pass; what is longer is refused by its length, be it long in bytes only."""
    options = {"t": "x" * (LONGEST_OPTIONS - len('{"t": ""}'))}
    (entry,) = asked_processors([f"{PREFIX}cool={json.dumps(options)}"], KNOWN)
    assert entry.options == options
    longer = json.dumps({"t": options["t"] + "x"})
    assert f"{LONGEST_OPTIONS + 1} characters of options" in str(refused(f"{PREFIX}cool={longer}"))
    wide = json.dumps({"t": "é" * (LONGEST_OPTIONS // 2)}, ensure_ascii=False)
    assert "characters of options" in str(refused(f"{PREFIX}cool={wide}"))


def test_each_at_most_once() -> None:
    """Twice the same one is a mistake, whatever its options are."""
    assert "every logits processor once" in str(refused(f"{PREFIX}cool", f'{PREFIX}cool={{"t": 1}}'))


def test_not_too_many() -> None:
    """Their number has a limit, and the refusal does not list them."""
    names = [f"p{number}" for number in range(MOST_PROCESSORS + 1)]
    texts = [PREFIX + name for name in names]
    assert len(asked_processors(texts[:-1], names)) == MOST_PROCESSORS
    with pytest.raises(InvalidRequest, match=f"at most {MOST_PROCESSORS}"):
        asked_processors(texts, names)
