"""Values are read as pydantic reads them for TensorRT-LLM: neither more nor less is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from service.options.engine_arguments.value_kinds import (
    Kind,
    ListOf,
    Number,
    Object,
    Rising,
    Switch,
    SwitchOr,
    Text,
    Whole,
    Words,
    as_switch,
    as_whole,
)

_TYPES: dict[str, tuple[Kind, Any]] = {
    "int": (Whole(), int),
    "NonNegativeInt": (Whole(0), NonNegativeInt),
    "PositiveInt": (Whole(1), PositiveInt),
    "float": (Number(), float),
    "NonNegativeFloat": (Number(0), NonNegativeFloat),
    "float in bounds": (Number(0, 1), Annotated[float, Field(ge=0, le=1)]),
    "bool": (Switch(), bool),
    "bool or auto": (SwitchOr("auto"), bool | Literal["auto"]),
    "str": (Text(), str),
    "list[int]": (ListOf(Whole(), "whole numbers"), list[int]),
    "list[float]": (ListOf(Number(), "numbers"), list[float]),
    "list[int], some": (
        ListOf(Whole(), "whole numbers", may_be_empty=False),
        Annotated[list[int], Field(min_length=1)],
    ),
    "list[str]": (ListOf(Text(), "texts"), list[str]),
    "dict[str, Any]": (Object(), dict[str, Any]),
    "dict[str, str]": (Object(of_texts=True), dict[str, str]),
}
_SIGNS, _ENDS = st.sampled_from(["", "+", "-"]), st.sampled_from(["", ".0", ".00", ".5", ".", "e3", " ", "k"])
_DIGITS = st.sampled_from(["", "0", "1", "007", "12", "1_000", "1__0", "_1"])
_NUMBERS = st.builds("{}{}{}".format, _SIGNS, _DIGITS, _ENDS)
_WORDS = st.sampled_from(
    ["true", "False", "YES", "no", "on", "Off", "t", "f", "y", "N", "auto", " true", "٣"]
)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 2.0**62, 2.0**63, 10**400])
    | _NUMBERS
    | _WORDS
)
_VALUES = (
    _SCALARS | st.lists(_SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), _SCALARS, max_size=2)
)


def _read(kind: Any, value: object) -> tuple[bool, object]:
    """Whether pydantic takes it, and for what."""
    try:
        return True, TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False, None


@pytest.mark.parametrize("name", sorted(_TYPES))
@given(value=_VALUES)
def test_what_pydantic_takes_is_taken(name: str, value: object) -> None:
    """And what it refuses is not."""
    kind, type_ = _TYPES[name]
    # Its underscores in fractions follow no rule.
    assume("float" not in name.lower() or "_" not in str(value))
    assert kind.takes(value) == _read(type_, value)[0]


@given(_SCALARS)
def test_numbers_and_switches_mean_what_pydantic_makes_of_them(value: object) -> None:
    """The value, not only that there is one."""
    assert as_whole(value) == _read(int, value)[1]
    assert as_switch(value) == _read(bool, value)[1]


@pytest.mark.parametrize("name", sorted(_TYPES))
@given(value=_VALUES)
def test_what_is_of_a_type_is_taken_for_itself(name: str, value: object) -> None:
    """Where the worker reads a value, it sees the same as TensorRT-LLM."""
    kind, type_ = _TYPES[name]
    if kind.holds(value):
        assert _read(type_, value) == (True, value)


@pytest.mark.parametrize("name", sorted(_TYPES))
@given(value=_VALUES)
def test_what_is_taken_becomes_what_pydantic_makes_of_it(name: str, value: object) -> None:
    """And is of the type then, so that doing it again changes nothing; what is refused stays as it was."""
    kind, type_ = _TYPES[name]
    assume("float" not in name.lower() or "_" not in str(value))
    typed = kind.typed(value)
    if kind.takes(value):
        assert kind.holds(typed)
        assert typed == _read(type_, value)[1]
    else:
        assert typed is value


@given(_VALUES)
def test_words_are_compared_as_they_are(value: object) -> None:
    """In upper and lower case."""
    kind = Words(("auto", "AUTO"))
    assert kind.takes(value) == kind.holds(value) == (value == "auto")


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [
        ([0.1, 1], True),
        ([1], True),
        ([], False),
        ([1, 1], False),
        ([2, 1], False),
        (["x"], False),
        (["nan"], False),
        (1, False),
    ],
)
def test_bounds_rise(value: object, is_taken: bool) -> None:
    """As its metrics' histograms need them."""
    assert Rising().takes(value) == Rising().holds(value) == is_taken


@pytest.mark.parametrize(
    ("value", "typed"), [(["0.1", 1], [0.1, 1]), ([False, "2"], [0.0, 2.0]), (["10", "9"], ["10", "9"])]
)
def test_bounds_in_quotes_rise_as_numbers(value: list[object], typed: list[object]) -> None:
    """Nine is below ten, also where both are texts."""
    assert not Rising().holds(value)
    assert Rising().typed(value) == typed
