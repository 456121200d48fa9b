"""Drop-in: the worker knows every flag and variable of the one it replaces."""

from __future__ import annotations

import pytest

from service.options.command_line import parse_command_line
from service.options.errors import Complaints
from service.options.tables import OPTIONS
from tests.service.options.upstream_flags import UPSTREAM_FLAGS
from tests.service.options.world import load

_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags()}


@pytest.mark.parametrize(
    ("flag", "variable", "alias"), UPSTREAM_FLAGS, ids=[row[0] for row in UPSTREAM_FLAGS]
)
def test_every_upstream_flag_is_known_with_its_variable(
    flag: str, variable: str | None, alias: str | None
) -> None:
    """Each flag, its alias and its variable lead to one and the same option."""
    option = _BY_FLAG[flag]
    assert variable is None or variable in option.envs()
    assert alias is None or _BY_FLAG[alias] is option


@pytest.mark.parametrize("flag", [row[0] for row in UPSTREAM_FLAGS if row[0] != "--version"])
def test_every_upstream_flag_is_accepted_with_its_default(flag: str) -> None:
    """A flag that only repeats the default changes nothing and is never refused."""
    option = _BY_FLAG[flag]
    if option.default is None:
        return
    if option.is_switch:
        words = [flag if option.default else "--no-" + flag.removeprefix("--")]
    else:
        words = [f"{flag}={option.kind.show(option.default)}"]
    assert load(*words).resolution[option.name].value == option.default


@pytest.mark.parametrize("flag", [flag for option in OPTIONS if option.is_switch for flag in option.flags()])
def test_every_switch_has_a_negated_form(flag: str) -> None:
    """``--x`` and ``--no-x`` are read as true and false."""
    option = _BY_FLAG[flag]
    for word, value in ((flag, "true"), ("--no-" + flag.removeprefix("--"), "false")):
        complaints = Complaints()
        typed = parse_command_line([word], complaints)
        assert not complaints.problems
        assert typed.given[option.name].raw == value


def test_names_are_unique() -> None:
    """No flag, variable or key belongs to two options."""
    for names in (
        [flag for option in OPTIONS for flag in option.flags()],
        [name for option in OPTIONS for name in option.envs()],
        [option.name for option in OPTIONS],
    ):
        assert len(names) == len(set(names))


def test_every_default_can_be_read_back() -> None:
    """A default is a value that its own kind accepts."""
    for option in OPTIONS:
        if option.default is not None:
            assert option.kind.parse(option.kind.show(option.default)) == option.default
