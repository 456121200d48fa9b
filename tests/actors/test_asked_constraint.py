"""What a request says beside its constraint: who shall obey it, and which blanks it may have."""

from __future__ import annotations

from typing import Any

import pytest

from actors.asked_constraint import asked_constraint
from protocols.engine import EngineCapabilities
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind

CAN = EngineCapabilities(guided=frozenset({GuidedKind.JSON, GuidedKind.REGEX}), guided_backend="xgrammar")
CANNOT = EngineCapabilities(no_guided="nobody has chosen one")
PATTERN = Guided(kind=GuidedKind.REGEX, constraint="a+")


def refused(group: dict[str, Any], can: EngineCapabilities = CAN) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        asked_constraint(group, "double", can)
    return caught.value


@pytest.mark.parametrize("backend", [None, "", "auto", "xgrammar"])
@pytest.mark.parametrize("blanks", [None, ""])
def test_what_is_so_anyway_may_be_said(backend: str | None, blanks: str | None) -> None:
    """Clients that write a back-end into every request are served where it is the one that there is."""
    asked = {"regex": "a+", "json": None, "backend": backend, "whitespace_pattern": blanks}
    assert asked_constraint(asked, "double", CAN) == PATTERN


@pytest.mark.parametrize("group", [None, {}, {"regex": None}, {"backend": "auto"}, {"backend": "xgrammar"}])
def test_a_back_end_alone_constrains_nothing(group: dict[str, Any] | None) -> None:
    """Nor does a group without a word in it."""
    assert asked_constraint(group, "double", CAN) is None


@pytest.mark.parametrize("backend", ["llguidance", "outlines", "XGRAMMAR", 1, ["xgrammar"]])
@pytest.mark.parametrize("constraint", [{}, {"regex": "a+"}])
def test_another_back_end_is_refused_by_its_name(constraint: dict[str, Any], backend: Any) -> None:
    """With the one that there is: whoever asks for another wants what that one understands."""
    error = refused({**constraint, "backend": backend})
    assert (error.field, error.value) == ("sampling_options.guided_decoding.backend", backend)
    assert "'auto' or 'xgrammar'" in error.allowed


@pytest.mark.parametrize("constraint", [{}, {"json": {"type": "object"}}])
def test_a_pattern_of_blanks_is_refused_by_its_name(constraint: dict[str, Any]) -> None:
    """No engine takes it, and without it the answer is another one."""
    error = refused({**constraint, "whitespace_pattern": " ?"})
    assert error.field == "sampling_options.guided_decoding.whitespace_pattern"
    assert "'double'" in error.allowed


def test_an_engine_without_constraints_says_so_first() -> None:
    """Another back-end would not help."""
    error = refused({"regex": "a+", "backend": "xgrammar"}, CANNOT)
    assert error.field == "sampling_options.guided_decoding"
    assert "nobody has chosen one" in error.allowed
    assert refused({"backend": "xgrammar"}, CANNOT).allowed == "'auto'"


def test_what_a_constraint_is_missing_is_not_blamed_on_the_back_end() -> None:
    """Two constraints are two with it, too."""
    error = refused({"regex": "a+", "json": {}, "backend": "xgrammar"})
    assert (error.field, error.value) == ("sampling_options.guided_decoding", {"regex": "a+", "json": {}})
    assert "exactly one of json, regex" in error.allowed
