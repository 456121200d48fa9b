"""Structural tags, in the words of both frameworks: what each of them is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.options.tag_kind import FIELDS
from tests.service.options.world import NEW_FRAMEWORK, load, refused, with_tensorrt

if TYPE_CHECKING:
    from pathlib import Path

    from service.options import EngineFacts, FrameworkFacts, Settings

_TRTLLM = ("--engine", "trtllm")
_XGRAMMAR = (*_TRTLLM, "--guided-decoding-backend", "xgrammar")
_PARSER = ("--dyn-tool-call-parser", "hermes")
_ON = {"scope": "always", "schema": "auto"}


def _new(*argv: str, env: dict[str, str] | None = None) -> Settings:
    return load(*argv, env=env, facts=NEW_FRAMEWORK, installed=with_tensorrt())


def _object(*argv: str, engine: tuple[str, ...] = ("--engine", "torch")) -> object:
    """What framework 1.6 is told."""
    return _new(*engine, *argv).requests.structural_tags.as_object


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "TRUE"])
def test_true_is_upstreams_object(word: str) -> None:
    """The framework takes an object and nothing else: a bare true would end the worker while it starts."""
    for engine in (("--engine", "torch"), _TRTLLM):
        assert _object("--dyn-structural-tag", word, engine=engine) == _ON
    assert _object("--dyn-structural-tag", "--max-live", "3") == _ON


@pytest.mark.parametrize("word", ["false", "0", "no", "off"])
def test_false_is_no_object(word: str) -> None:
    """Off, also where tags are on by default."""
    assert _object("--dyn-structural-tag", word) is None
    assert _object("--dyn-structural-tag", word, engine=_XGRAMMAR) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, _ON),
        ({"schema": "strict"}, {"scope": "always", "schema": "strict"}),
        ({"scope": "auto"}, {"scope": "auto", "schema": "auto"}),
        ({"exclude_special_tokens": None}, {**_ON, "exclude_special_tokens": None}),
        ({"tool_arguments_any_order": True}, {**_ON, "tool_arguments_any_order": True}),
    ],
)
def test_a_scope_that_is_not_given_is_upstreams(
    given: dict[str, object], told: dict[str, object], tmp_path: Path
) -> None:
    """The Rust side of the framework would take another one."""
    assert _object("--dyn-structural-tag", json.dumps(given)) == told
    path = tmp_path / "worker.yaml"
    path.write_text(json.dumps({"dyn-structural-tag": given}), encoding="utf-8")
    assert _object("--config", str(path)) == told


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"scpoe":"always"}', "(unknown key 'scpoe'; the nearest is scope)"),
        ('{"any_order":true}', "(unknown key 'any_order'; the nearest is tool_arguments_any_order)"),
        ('{"scope":"sometimes"}', "(scope must be one of always, auto)"),
        ('{"scope":"Always"}', "(scope must be one of always, auto)"),
        ('{"scope":null}', "(scope must be one of always, auto)"),
        ('{"tool_arguments_any_order":1}', "(tool_arguments_any_order must be one of false, true)"),
        ('{"exclude_special_tokens":"no"}', "(exclude_special_tokens must be one of null, false, true)"),
        ('{"scope":"auto","scope":"always"}', "(a key is there twice)"),
        ("[]", "(found list)"),
        ("2", "(found int)"),
    ],
)
def test_what_the_framework_would_die_of_is_refused(text: str, why: str) -> None:
    """It reads the object when the model has been loaded; the options read it first."""
    line = refused("--dyn-structural-tag", text, facts=NEW_FRAMEWORK)
    assert line.startswith(f"--dyn-structural-tag: value {text!r}: allowed: true/1/yes/on or false/0/no/off")
    assert line.endswith(why)


@given(st.fixed_dictionaries({}, optional={name: st.sampled_from(all_) for name, all_ in FIELDS.items()}))
def test_every_value_of_every_field_is_told(fields: dict[str, object]) -> None:
    """None is lost, none is made up but scope and schema."""
    assert _object("--dyn-structural-tag", json.dumps(fields)) == {**_ON, **fields}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--dyn-enable-structural-tag"], _ON),
        (["--no-dyn-enable-structural-tag"], None),
        (["--dyn-structural-tag-scope", "auto"], {"scope": "auto", "schema": "auto"}),
        (["--dyn-structural-tag-schema", "strict"], {"scope": "always", "schema": "strict"}),
        (
            ["--dyn-enable-structural-tag", "--dyn-structural-tag-scope=auto"],
            {"scope": "auto", "schema": "auto"},
        ),
        (["--no-dyn-enable-structural-tag", "--dyn-structural-tag-scope=always"], None),
    ],
)
def test_old_spellings_are_parts_of_the_object(words: list[str], told: dict[str, object] | None) -> None:
    """As upstream hands them on, with a warning for each; they did nothing once, and it was not seen."""
    for engine in (("--engine", "torch"), _XGRAMMAR):
        settings = _new(*engine, *words)
        assert settings.requests.structural_tags.as_object == told
        warned = [text for text in settings.warnings if "old spelling" in text]
        assert len(warned) == len([word for word in words if word.startswith("--")])


@pytest.mark.parametrize(
    ("engine", "is_on"),
    [
        (("--engine", "torch"), True),
        (_XGRAMMAR, True),
        (_TRTLLM, False),
        ((*_TRTLLM, "--guided-decoding-backend", "llguidance"), False),
        (("--engine", "synthetic"), False),
    ],
)
def test_without_a_word_tags_are_on_where_the_engine_follows_them(
    engine: tuple[str, ...], is_on: bool
) -> None:
    """Upstream has them on everywhere. Elsewhere here each request with tools would be refused for them."""
    settings = _new(*engine)
    assert settings.requests.structural_tags.as_object == (_ON if is_on else None)
    assert settings.warnings == ()


def test_a_back_end_in_the_engines_own_words_counts(tmp_path: Path) -> None:
    """As everywhere."""
    path = tmp_path / "engine.yaml"
    path.write_text("guided_decoding_backend: xgrammar\n", encoding="utf-8")
    assert _object("--extra-engine-args", str(path), engine=_TRTLLM) == _ON


@pytest.mark.parametrize(
    ("words", "refused_words"),
    [
        (["--dyn-structural-tag=true", "--dyn-enable-structural-tag"], []),
        (['--dyn-structural-tag={"scope":"auto"}', "--dyn-enable-structural-tag"], []),
        (["--dyn-structural-tag=false", "--no-dyn-enable-structural-tag"], []),
        (["--dyn-structural-tag=false", "--dyn-enable-structural-tag"], ["--dyn-enable-structural-tag"]),
        (["--dyn-structural-tag=true", "--no-dyn-enable-structural-tag"], ["--no-dyn-enable-structural-tag"]),
        (
            ["--dyn-structural-tag=true", "--dyn-structural-tag-scope=always"],
            ["--dyn-structural-tag-scope"],
        ),
        (
            [
                "--dyn-structural-tag={}",
                "--dyn-structural-tag-schema=auto",
                "--dyn-structural-tag-scope=auto",
            ],
            ["--dyn-structural-tag-scope", "--dyn-structural-tag-schema"],
        ),
    ],
)
def test_old_and_new_words_must_agree(words: list[str], refused_words: list[str]) -> None:
    """Upstream's rule: on and off may be said twice, parts of the object may not."""
    if not refused_words:
        _new("--engine", "torch", *words)
        return
    lines = refused(*words, facts=NEW_FRAMEWORK).splitlines()
    assert [line.split(":")[0] for line in lines] == refused_words
    assert all(line.endswith("cannot be combined with --dyn-structural-tag") for line in lines)


def test_the_older_framework_gets_its_three_options() -> None:
    """Off unless it is asked; no spelling is old there."""
    words = ("--dyn-enable-structural-tag", "--dyn-structural-tag-scope=always")
    settings = load("--engine", "torch", *words)
    tags = settings.requests.structural_tags
    assert (tags.enabled, tags.scope, tags.schema) == (True, "always", "auto")
    assert settings.warnings == ()
    assert not load("--engine", "torch").requests.structural_tags.enabled


@pytest.mark.parametrize(
    ("facts", "words", "backend", "named"),
    [
        (None, ["--dyn-enable-structural-tag"], "llguidance", "--dyn-enable-structural-tag"),
        (None, ["--dyn-enable-structural-tag"], None, "--dyn-enable-structural-tag"),
        (None, ["--dyn-enable-structural-tag"], "xgrammar", None),
        (None, ["--dyn-structural-tag-scope=always"], None, None),
        (NEW_FRAMEWORK, ["--dyn-structural-tag=true"], None, "--dyn-structural-tag"),
        (NEW_FRAMEWORK, ["--dyn-structural-tag-scope=auto"], None, "--dyn-structural-tag-scope"),
        (NEW_FRAMEWORK, ["--dyn-structural-tag=false"], None, None),
        (NEW_FRAMEWORK, ["--no-dyn-enable-structural-tag"], None, None),
        (NEW_FRAMEWORK, ["--dyn-structural-tag=true"], "xgrammar", None),
        (NEW_FRAMEWORK, [], None, None),
    ],
)
def test_tags_that_nobody_follows_are_warned_about(
    facts: FrameworkFacts | None, words: list[str], backend: str | None, named: str | None
) -> None:
    """Every request with tools would be refused."""
    argv = [*words] if backend is None else [*words, "--guided-decoding-backend", backend]
    warnings = load(*_TRTLLM, *argv, facts=facts, installed=with_tensorrt()).warnings
    found = [text.split(":")[0] for text in warnings if "requests with tools will be refused" in text]
    assert found == ([] if named is None else [named])


@pytest.mark.parametrize(
    ("facts", "words", "is_said"),
    [
        (NEW_FRAMEWORK, [], True),
        (NEW_FRAMEWORK, ["--dyn-structural-tag=false"], False),
        (NEW_FRAMEWORK, ["--guided-decoding-backend", "xgrammar"], False),
        (None, [], False),
    ],
)
def test_a_default_that_does_not_come_true_is_said_to_who_has_tools(
    facts: FrameworkFacts | None, words: list[str], is_said: bool
) -> None:
    """Whoever names a tool parser, and comes from upstream's worker, expects guided calls."""
    warnings = load(*_TRTLLM, *_PARSER, *words, facts=facts, installed=with_tensorrt()).warnings
    assert [text.split(":")[0] for text in warnings] == (["--dyn-tool-call-parser"] if is_said else [])


_ANY_ORDER = ("--dyn-structural-tag", '{"tool_arguments_any_order": true}')


def _with_xgrammar(version: str) -> EngineFacts:
    return replace(with_tensorrt(), xgrammar_version=version)


@pytest.mark.parametrize("version", ["0.1.32", "0.2.2", "0.2.2.post1"])
def test_arguments_in_any_order_need_a_newer_library(version: str) -> None:
    """The framework's own worker ends over it; here the version is told."""
    words = (*_XGRAMMAR, *_ANY_ORDER)
    line = refused(*words, facts=NEW_FRAMEWORK, installed=_with_xgrammar(version))
    assert line.startswith("--dyn-structural-tag: value ")
    assert line.endswith(f"tool_arguments_any_order needs xgrammar 0.2.3; {version} is installed")


@pytest.mark.parametrize("version", ["0.2.3", "0.10.0", "1.0"])
def test_arguments_in_any_order_are_taken_with_such_a_library(version: str) -> None:
    """Versions are compared by their numbers."""
    words = (*_XGRAMMAR, *_ANY_ORDER)
    assert load(*words, facts=NEW_FRAMEWORK, installed=_with_xgrammar(version)).warnings == ()


def test_arguments_in_any_order_are_warned_about_where_no_library_is() -> None:
    """A machine that only checks; and not at all where nobody asked, or another engine follows tags."""
    (warning,) = load(*_XGRAMMAR, *_ANY_ORDER, facts=NEW_FRAMEWORK, installed=_with_xgrammar("")).warnings
    assert "tool_arguments_any_order needs xgrammar 0.2.3 or newer" in warning
    old = _with_xgrammar("0.1.32")
    off = ("--dyn-structural-tag", '{"tool_arguments_any_order": false}')
    assert load(*_XGRAMMAR, *off, facts=NEW_FRAMEWORK, installed=old).warnings == ()
    assert load("--engine", "torch", *_ANY_ORDER, facts=NEW_FRAMEWORK, installed=old).warnings == ()
