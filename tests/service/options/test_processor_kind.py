"""``--logits-processor``: several ways to write the same thing, and what is wrong is said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.options import print_config
from service.options.processor_kind import Processors
from service.options.settings import ProcessorImport
from tests.service.options.strategies import texts
from tests.service.options.world import load, refused

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = ProcessorImport(name="plain", factory="my.module:Plain", options={})
COOL = ProcessorImport(
    name="cool.1", factory="my_module:Cool.make", options={"t": 0.7, "a": [1, {"b": "x, y"}]}
)
COOL_TEXT = f"cool.1=my_module:Cool.make={json.dumps(COOL.options)}"


def test_the_flag_may_be_repeated() -> None:
    """Each gives one more, in their order, without the warning that equal flags get."""
    settings = load("--logits-processor", "plain=my.module:Plain", f"--logits-processor={COOL_TEXT}")
    assert settings.engine.processors == (PLAIN, COOL)
    assert settings.warnings == ()


@pytest.mark.parametrize("between", [" ", ",", ", ", "\n", " ,\n "])
def test_the_variable_holds_several(between: str) -> None:
    """Blanks, commas and line breaks separate them; those inside of options do not."""
    settings = load(env={"DYN_ACTOR_LOGITS_PROCESSORS": f"plain=my.module:Plain{between}{COOL_TEXT}"})
    assert settings.engine.processors == (PLAIN, COOL)


@pytest.mark.parametrize(
    "lines",
    [
        f"logits-processor: ['plain=my.module:Plain', '{COOL_TEXT}']",
        f"logits_processor: 'plain=my.module:Plain {COOL_TEXT}'",
        "logits-processor:\n  plain: my.module:Plain\n  cool.1:\n    factory: my_module:Cool.make\n"
        f"    options: {json.dumps(COOL.options)}",
        "logits-processor:\n  plain: {factory: 'my.module:Plain'}\n"
        f"  cool.1: 'my_module:Cool.make={json.dumps(COOL.options)}'",
    ],
    ids=["list", "text", "objects", "mixed"],
)
def test_a_file_may_be_written_as_one_likes(tmp_path: Path, lines: str) -> None:
    """A list of texts, one text, or names with what they stand for."""
    path = tmp_path / "worker.yaml"
    path.write_text(lines, encoding="utf-8")
    assert load("--config", str(path)).engine.processors == (PLAIN, COOL)


def test_none_is_the_default() -> None:
    """Also when a variable is there and empty."""
    assert load().engine.processors == ()
    assert load(env={"DYN_ACTOR_LOGITS_PROCESSORS": " "}).engine.processors == ()


def test_the_resolved_configuration_lists_them() -> None:
    """With options and source."""
    (line,) = [
        line
        for line in print_config(load("--logits-processor", COOL_TEXT)).splitlines()
        if line.startswith("--logits-processor ")
    ]
    assert COOL_TEXT in line
    assert line.endswith("flag --logits-processor")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("plain", "cannot read 'plain'"),
        ("=my.module:Plain", "cannot read"),
        ("a/b=my.module:Plain", "cannot read 'a/b="),
        ("plain=my.module", "cannot read"),
        ("plain=:Plain", "cannot read"),
        ("plain=my.module:Plain:More", "cannot read"),
        ("plain=my.module:Plain=", "Expecting value"),
        ("plain=my.module:Plain=3", "no JSON object but int"),
        ("plain=my.module:Plain={", "Expecting property name"),
        ('plain=my.module:Plain={"t": NaN}', "NaN is not JSON"),
        ('plain=my.module:Plain={"t": 1, "t": 2}', "a key is there twice"),
        ("plain=my.module:Plain={}x=y:Z", "cannot read"),
        ("plain=my.module:Plain plain=my.module:Other", "'plain' is there twice"),
        ("plain=my.module:Plain=" + '{"a":' * 2000, "nested too deep"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    """By the option's name, with the value, what is allowed and the place."""
    line = refused("--logits-processor", text)
    assert line.startswith("--logits-processor: value ")
    assert "allowed: NAME=module:Factory" in line
    assert why in line


@pytest.mark.parametrize(
    "lines",
    [
        "logits-processor: 3",
        "logits-processor: [3]",
        "logits-processor: {plain: 3}",
        "logits-processor: {plain: {options: {}}}",
        "logits-processor: {plain: {factory: 'a:B', other: 1}}",
        "logits-processor: {plain: {factory: 'a:B', options: 3}}",
        "logits-processor: {plain: {factory: 'a:B', options: {when: 2020-01-01}}}",
        "logits-processor: {plain: 'a:B c=d:E'}",
    ],
)
def test_a_file_with_something_else_is_refused(tmp_path: Path, lines: str) -> None:
    """With the file and the key."""
    path = tmp_path / "worker.yaml"
    path.write_text(lines, encoding="utf-8")
    assert refused("--config", str(path)).startswith(f"{path}:logits-processor: value ")


@given(texts(Processors()), st.sampled_from(["", "x", "=", ":", "{", "}", "é", "\x00"]))
def test_texts_are_read_or_refused(text: str, tail: str) -> None:
    """Whatever is appended: a value that can be shown and read again, or a ValueError."""
    kind = Processors()
    try:
        value = kind.parse(text + tail)
    except ValueError:
        return
    assert kind.parse(kind.show(value)) == value
