"""Any value of any option arrives the same from the command line, the environment and a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.options.command_line import parse_command_line
from service.options.errors import Complaints
from service.options.resolve import Resolved, resolve
from service.options.tables import OPTIONS
from tests.service.options.strategies import texts

if TYPE_CHECKING:
    from pathlib import Path

    from service.options.option import Option

_FLAGGED = [option for option in OPTIONS if option.flag and not option.is_switch and option.name != "config"]
_VARIABLES = [option for option in OPTIONS if option.env and option.name != "config"]
_KEYS = [option for option in OPTIONS if option.in_file]


@st.composite
def _option_and_text(draw: st.DrawFn, options: list[Option]) -> tuple[Option, str]:
    option = draw(st.sampled_from(options))
    return option, draw(texts(option.kind))


def _resolved(option: Option, argv: list[str], env: dict[str, str]) -> Resolved:
    complaints = Complaints()
    resolution = resolve(parse_command_line(argv, complaints), env, complaints)
    assert complaints.problems == []
    return resolution[option.name]


@settings(max_examples=150)
@given(_option_and_text(_FLAGGED), st.booleans())
def test_a_flag_gives_its_value_and_its_source(drawn: tuple[Option, str], with_equals: bool) -> None:
    """``--flag value`` and ``--flag=value`` mean the same, and the flag is the source."""
    option, text = drawn
    argv = [f"{option.flag}={text}"] if with_equals else [str(option.flag), text]
    found = _resolved(option, argv, {})
    assert found.value == option.kind.parse(text)
    assert str(found.source) == f"flag {option.flag}"


@settings(max_examples=150)
@given(_option_and_text(_VARIABLES))
def test_a_variable_gives_its_value_and_its_source(drawn: tuple[Option, str]) -> None:
    """The variable is the source."""
    option, text = drawn
    found = _resolved(option, [], {str(option.env): text})
    assert found.value == option.kind.parse(text)
    assert str(found.source) == f"env {option.env}"


@pytest.mark.parametrize("suffix", [".yaml", ".toml"])
@settings(max_examples=150)
@given(drawn=_option_and_text(_KEYS), with_dashes=st.booleans())
def test_a_file_gives_its_value_and_its_source(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, drawn: tuple[Option, str], with_dashes: bool
) -> None:
    """Keys may be written with dashes or underscores; the file and the key are the source."""
    option, text = drawn
    key = option.name.replace("_", "-") if with_dashes else option.name
    path = _write(tmp_path_factory.mktemp("config"), suffix, key, text)
    found = _resolved(option, ["--config", str(path)], {})
    assert found.value == option.kind.parse(text)
    assert str(found.source) == f"file {path}:{key}"


def _write(folder: Path, suffix: str, key: str, text: str) -> Path:
    path = folder / f"worker{suffix}"
    separator = " = " if suffix == ".toml" else ": "
    path.write_text(f"{key}{separator}{json.dumps(text)}\n", encoding="utf-8")
    return path


@settings(max_examples=100)
@given(_option_and_text([option for option in OPTIONS if not option.is_secret]))
def test_what_is_shown_can_be_given(drawn: tuple[Option, str]) -> None:
    """The text of ``--print-config`` is accepted again and means the same."""
    option, text = drawn
    value = option.kind.parse(text)
    assert option.kind.parse(option.kind.show(value)) == value


@settings(max_examples=100)
@given(
    st.sampled_from([o for o in _FLAGGED if o.env and o.in_file and o.env != "DYN_ACTOR_CONFIG"]), st.data()
)
def test_flag_over_variable_over_file_over_default(
    tmp_path_factory: pytest.TempPathFactory, option: Option, data: st.DataObject
) -> None:
    """The strongest source wins, and the weaker ones are named."""
    in_flag, in_env, in_file = (data.draw(texts(option.kind)) for _ in range(3))
    path = _write(tmp_path_factory.mktemp("config"), ".yaml", option.name, in_file)
    argv, env = ["--config", str(path)], {str(option.env): in_env}
    everything = _resolved(option, [*argv, f"{option.flag}={in_flag}"], env)
    assert everything.value == option.kind.parse(in_flag)
    assert [source.kind for source in everything.overrides] == ["env", "file"]
    assert _resolved(option, argv, env).value == option.kind.parse(in_env)
    assert _resolved(option, argv, {}).value == option.kind.parse(in_file)
    assert _resolved(option, [], {}).source.kind == "default"
