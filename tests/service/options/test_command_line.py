"""The command line: words, values, mistakes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.options import COMMANDS, ConfigError, split_command
from service.options.tables import OPTIONS
from tests.service.options.world import load, refused

_NAMES = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz-"), min_size=1, max_size=30)
_FLAGS = {flag for option in OPTIONS for flag in option.flags()}
_NEGATED = {f"--no-{flag[2:]}" for option in OPTIONS if option.is_switch for flag in option.flags()}
_KNOWN = _FLAGS | _NEGATED


@settings(max_examples=50)
@given(_NAMES)
def test_an_unknown_flag_never_passes(name: str) -> None:
    """Whatever is no flag of the table is refused, with a flag of the table where one is near."""
    flag = f"--{name}"
    assume(flag not in _KNOWN)
    where, complaint = refused(flag).split(": ", maxsplit=1)
    assert where == flag
    if complaint.startswith("is no flag; set the variable DYN_"):
        return
    start, meant = complaint.split("; ")
    guess = meant.removeprefix("the nearest is ").removeprefix("here it is ")
    assert start == "unknown flag"
    assert guess in _KNOWN or meant == "--help names all of them"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("--max-liv", "--max-live"),
        ("--max_live", "--max-live"),
        ("--drain-time", "--drain-timeout"),
        ("--served-model-nmae", "--served-model-name"),
        ("--kv-blocksize", "--kv-block-size"),
        ("--no-trust-remot-code", "--no-trust-remote-code"),
        ("--name-served-model", "--served-model-name"),
        ("--gpu-free-mem-fraction", "--free-gpu-memory-fraction"),
    ],
)
def test_a_misspelt_flag_is_answered_with_the_right_one(wrong: str, right: str) -> None:
    """The guess is the flag that was meant."""
    assert refused(wrong, "3") == f"{wrong}: unknown flag; the nearest is {right}"


@pytest.mark.parametrize("wrong", ["--x", "--zz", "--ports", "--api-server-count", "--enforce-eager"])
def test_no_flag_is_guessed_where_none_is_near(wrong: str) -> None:
    """Another option altogether would lead astray."""
    assert refused(wrong, "3") == f"{wrong}: unknown flag; --help names all of them"


def test_every_problem_is_reported_at_once() -> None:
    """One start shows all mistakes, a line each."""
    words = ["--max-live", "0", "--dtype", "fp8", "--bogus", "x", "--seed"]
    lines = refused(*words, env={"DYN_ACTOR_THREADS": "many"}).splitlines()
    named = sorted(line.split(":")[0] for line in lines)
    assert named == ["--bogus", "--dtype", "--max-live", "--seed", "DYN_ACTOR_THREADS"]


def test_a_stray_word_is_refused() -> None:
    """Nothing on the command line is skipped."""
    assert refused("--max-live", "3", "stray").startswith("command line: value 'stray'")


@pytest.mark.parametrize("words", [["--model"], ["--model", "--max-live", "3"], ["--endpoint-types"]])
def test_a_flag_without_its_value_is_refused(words: list[str]) -> None:
    """The next flag is no value."""
    assert refused(*words).startswith(f"{words[0]}: needs a value: ")


def test_a_value_may_begin_with_dashes_after_the_equals_sign() -> None:
    """``--flag=--value`` says it on purpose."""
    assert load("--model=--odd").model.model == "--odd"


def test_a_negative_number_is_a_value() -> None:
    """A single dash does not make a flag."""
    assert "--threads: value '-1': allowed: a whole number from 0" in refused("--threads", "-1")


def test_a_negated_flag_takes_no_value() -> None:
    """``--no-x=false`` would be a riddle."""
    assert refused("--no-trust-remote-code=false").startswith("--no-trust-remote-code: value 'false'")


def test_a_switch_may_be_spelt_out() -> None:
    """``--x=off`` is ``--no-x``."""
    assert load("--trust-remote-code=on").model.trust_remote_code
    assert not load("--trust-remote-code=off").model.trust_remote_code


def test_a_list_takes_the_words_up_to_the_next_flag() -> None:
    """Upstream's ``--output-modalities text image`` form."""
    settings = load("--endpoint-types", "completions", "chat", "--max-live", "3")
    assert settings.runtime.endpoint_types == ("completions", "chat")


def test_the_last_of_equal_flags_wins_aloud() -> None:
    """Arguments appended by a manifest override, with a warning."""
    settings = load("--max-num-seqs", "4", "--max-batch-size=8")
    assert settings.engine.max_num_seqs == 8
    assert settings.warnings == ("--max-batch-size: the last value wins; --max-num-seqs was given before it",)


@pytest.mark.parametrize(
    "text", ["inf", "-inf", "nan", "Infinity", "1e999", "0x10", "1_000", "", " 5", "\u0665"]
)
def test_what_is_no_plain_number_is_refused(text: str) -> None:
    """Numbers are finite, decimal and ASCII."""
    for flag in ("--deadline", "--max-live"):
        assert f"{flag}: value {text!r}: allowed: " in refused(f"{flag}={text}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_split_off(command: str) -> None:
    """The first word is the command, the rest is its own."""
    assert split_command([command, "--x", "y"]) == (command, ["--x", "y"])


def test_no_command_means_serve() -> None:
    """As with the worker this one replaces."""
    assert split_command(["--model", "m"]) == ("serve", ["--model", "m"])
    assert split_command([]) == ("serve", [])


def test_an_unknown_command_is_answered_with_the_nearest() -> None:
    """A typing mistake in the command stops at once."""
    with pytest.raises(ConfigError, match="the nearest is drain"):
        split_command(["drian", "--x"])
    with pytest.raises(ConfigError, match=r"wake, status$"):
        split_command(["explode"])


@pytest.mark.parametrize("words", [["--control-token", "abcdefgh"], ["--control-token=abcdefgh"]])
def test_a_secret_is_never_taken_from_the_command_line(words: list[str]) -> None:
    """Command lines are visible to everybody on the machine; the refusal does not repeat the secret."""
    assert refused(*words) == "--control-token: is no flag; set the variable DYN_ACTOR_CONTROL_TOKEN"
