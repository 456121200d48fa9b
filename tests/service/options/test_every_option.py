"""Every option of the upstream worker with ``--engine trtllm``: honoured or refused, never ignored."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.options import ConfigError, Settings
from service.options.environment import read_environment
from service.options.errors import Complaints
from service.options.json_kind import JsonObject
from service.options.kinds import Boolean, Choice, Integer, Number, Words
from service.options.option import Group, Option
from service.options.tables import OPTIONS
from tests.service.options.strategies import texts
from tests.service.options.upstream_flags import UPSTREAM_OPTIONS, UPSTREAM_VARIABLES, UpstreamOption
from tests.service.options.world import NEW_FRAMEWORK, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from service.options import FrameworkFacts

_TRTLLM = ("--engine", "trtllm")
_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags()}
_ROWS = [row for row in UPSTREAM_OPTIONS if row.flag != "--version"]
_IDS = [row.flag for row in _ROWS]
# Values that only they take.
_SAMPLES = {
    "--namespace": "team",
    "--endpoint": "a.b.c",
    "--kv-state-endpoint": "a.b.c",
    "--encode-endpoint": "a.b.c",
    "--dyn-tool-call-parser": "hermes",
    "--dyn-reasoning-parser": "qwen3",
    "--dyn-structural-tag": "true",
    "--health-check-payload": '{"token_ids": [1]}',
    "--override-engine-args": '{"max_batch_size": 3}',
    "--endpoint-types": "chat",
    "--load-format": "dummy",
    "--connector": "kvbm",
    "--disaggregation-mode": "prefill",
    "--media-output-fs-url": "s3://bucket",
}


def _sample(option: Option, folder: Path) -> str:
    """A value that is not the default."""
    flag = str(option.flag)
    if flag in _SAMPLES:
        return _SAMPLES[flag]
    default = option.default_with("trtllm")
    match option.kind:
        case Boolean():
            return "false" if default else "true"
        case Integer(minimum=minimum):
            return str((default if isinstance(default, int) else minimum) + 1)
        case Number(maximum=maximum):
            return str(maximum / 2 if default != maximum / 2 else maximum / 4)
        case Choice(values=values):
            return next(value for value in reversed(values) if value != default)
        case Words(values=values):
            return next((value for value in values if (value,) != default), "word")
        case JsonObject():
            return '{"x": 1}'
        case _:
            path = folder / "a-file"
            path.write_text("max_batch_size: 3\n", encoding="utf-8")
            return str(path)


def _effect(settings: Settings) -> dict[str, object]:
    """Everything that a worker does differently for a value, and not that it was given."""
    found = {
        field.name: getattr(settings, field.name) for field in fields(settings) if field.name != "resolution"
    }
    found["engine"] = replace(settings.engine, tensorrt_options=())
    if settings.engine_arguments is not None:
        found["engine_arguments"] = replace(settings.engine_arguments, origins=())
    return found


def _outcome(words: list[str], env: dict[str, str], flag: str, facts: FrameworkFacts | None) -> str:
    """What becomes of it. Fails where it is unknown, or refused under another name."""
    try:
        found = load(*_TRTLLM, *words, env=env, facts=facts)
    except ConfigError as error:
        for problem in error.problems:
            assert flag in problem.where or any(name in problem.where for name in env)
            assert not problem.allowed.startswith(("unknown flag", "unknown variable"))
        return "refused"
    if _effect(found) == _effect(load(*_TRTLLM, facts=facts)):
        return "ignored"
    return "said" if found.warnings else "honoured"


def _ways(row: UpstreamOption, text: str) -> Iterator[tuple[list[str], dict[str, str], str]]:
    """Every way of giving the value: words, variables, and the name that a complaint must have."""
    for flag in filter(None, (row.flag, row.alias)):
        yield [f"{flag}={text}"], {}, flag
    if row.variable is not None:
        yield [], {row.variable: text}, row.variable


@pytest.mark.parametrize("row", _ROWS, ids=_IDS)
@pytest.mark.parametrize("facts", [None, NEW_FRAMEWORK], ids=["1.4.2", "1.6.1"])
def test_no_option_is_ignored(row: UpstreamOption, facts: FrameworkFacts | None, tmp_path: Path) -> None:
    """Another value than the default changes the worker, is warned about, or stops the start by name.

    What upstream's users rely on is honoured, by flag, alias and variable; what came with 1.6 is, where the
    framework can.
    """
    for words, env, name in _ways(row, _sample(_BY_FLAG[row.flag], tmp_path)):
        outcome = _outcome(words, env, name, facts)
        assert outcome != "ignored"
        assert outcome != "refused" or row.treatment != "Y"


@pytest.mark.parametrize("row", _ROWS, ids=_IDS)
def test_defaults_are_upstreams(row: UpstreamOption) -> None:
    """A worker that is told nothing has what upstream's has with TensorRT-LLM."""
    option = _BY_FLAG[row.flag]
    theirs = None if row.default is None else option.kind.parse(row.default)
    ours = option.default_with("trtllm")
    assert ours == (() if row.flag == "--connector" else theirs)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(_IDS), st.data())
def test_any_value_of_any_option_is_taken_or_refused_by_name(flag: str, data: st.DataObject) -> None:
    """Whatever is written, the start goes on or says which option was wrong."""
    text = data.draw(texts(_BY_FLAG[flag].kind))
    _outcome([f"{flag}={text}"], {}, flag, None)


@pytest.mark.parametrize(
    ("name", "treatment"), UPSTREAM_VARIABLES, ids=[row[0] for row in UPSTREAM_VARIABLES]
)
def test_no_variable_of_upstream_is_called_unknown(name: str, treatment: str) -> None:
    """Ours, the framework's or TensorRT-LLM's: none is taken for a slip of the pen."""
    complaints = Complaints()
    read_environment({name: "1"}, complaints)
    assert not complaints.problems
    assert not [text for text in complaints.warnings if "is not known" in text]
    assert treatment in ("Y", "Y-", "A")


@pytest.mark.parametrize("name", ["DYN_FORWARDPASS_METRIC_PORT", "DYN_TRTLLM_KV_EVENT_HOSTS"])
def test_what_is_not_done_for_a_variable_is_said(name: str) -> None:
    """To the engine whose upstream worker does it; elsewhere the variable is nobody's business."""
    (warning,) = load(*_TRTLLM, env={name: "1"}).warnings
    assert warning.startswith(f"{name} has no effect")
    assert load("--engine", "torch", env={name: "1"}).warnings == ()


def test_what_the_operator_sets_everywhere_is_nobodys_wish() -> None:
    """A warning at every start of every pod would teach its readers to overlook the others."""
    assert load(*_TRTLLM, env={"DYN_FORWARDPASS_METRIC_PORT": "20380"}).warnings == ()


def test_the_table_is_whole() -> None:
    """91 options of both versions and the version itself, beside those of routing."""
    routing = [row for row in UPSTREAM_OPTIONS if _BY_FLAG[row.flag].group is Group.ROUTER]
    assert len(UPSTREAM_OPTIONS) - len(routing) == 92
