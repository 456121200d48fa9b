"""The line that says how a worker was told to run."""

from __future__ import annotations

import json

import pytest

from service.first_words import say_configuration
from tests.service.options.world import load
from tests.service.telemetry.readings import all_lines

SECRET = "correct-horse-battery-staple"


def test_the_configuration_is_one_line_with_what_was_given() -> None:
    """Defaults are left out, each option is named as it was given, secrets are masked, long values cut."""
    settings = load(
        "--engine", "synthetic", "--drain-timeout=20", "--served-model-name", "long-" * 40,
        env={"DYN_ACTOR_CONTROL_TOKEN": SECRET, "DYN_SYSTEM_PORT": "9345", "DYN_ACTOR_MAX_LIVE": "7"},
    )  # fmt: skip
    with all_lines() as lines:
        say_configuration(settings, "synthetic", "one-of-many")
    (line,) = lines.named("worker.configured")
    given = line.pop("given")
    assert SECRET not in lines.text
    assert "--engine=synthetic" in given
    assert "--drain-timeout=20" in given
    assert "DYN_ACTOR_MAX_LIVE=7" in given
    assert "DYN_ACTOR_CONTROL_TOKEN=" in given
    assert "--model=" not in given
    assert len(given) < 500
    assert lines.named("config.warning") == []
    facts = (
        "instance_id",
        "engine",
        "system_server",
        "max_live",
        "drain_until_s",
        "hard_exit_s",
        "endpoint",
        "request_plane",
    )
    assert {name: line[name] for name in facts} == {
        "instance_id": "one-of-many",
        "engine": "synthetic",
        "system_server": "127.0.0.1:9345",
        "max_live": 7,
        "drain_until_s": 25,
        "hard_exit_s": 40,
        "endpoint": "dynamo.backend.generate",
        "request_plane": "tcp",
    }


@pytest.mark.parametrize(
    ("env", "is_off"),
    [
        ({"DYN_SYSTEM_HOST": "0.0.0.0", "DYN_SYSTEM_PORT": "9345"}, True),
        ({"DYN_SYSTEM_HOST": "0.0.0.0", "DYN_SYSTEM_PORT": "9345", "DYN_ACTOR_CONTROL_TOKEN": SECRET}, False),
        ({"DYN_SYSTEM_HOST": "0.0.0.0", "DYN_SYSTEM_PORT": "-1"}, False),
        ({"DYN_SYSTEM_HOST": "127.0.0.1", "DYN_SYSTEM_PORT": "9345"}, False),
    ],
)
def test_control_routes_that_are_off_are_said_once(env: dict[str, str], is_off: bool) -> None:
    """With the variable that turns them on; where they are there, or nothing listens, nothing is said."""
    settings = load("--engine", "synthetic", env=env)
    with all_lines() as lines:
        say_configuration(settings, "synthetic", "one-of-many")
    said = lines.named("config.warning")
    assert len(said) == is_off
    for line in said:
        assert "drain, resume, trace, log_level are off" in line["text"]
        assert "DYN_ACTOR_CONTROL_TOKEN" in line["text"]


def test_the_arguments_of_the_engine_are_one_line() -> None:
    """As they are handed over, what may be a secret masked; other engines have none."""
    override = json.dumps({"max_batch_size": 8, "env_overrides": {"HF_TOKEN": SECRET}})
    for words, count in (
        (["--engine", "trtllm", "--override-engine-args", override], 1),
        (["--engine", "synthetic"], 0),
    ):
        with all_lines() as lines:
            say_configuration(load(*words), words[1], "one-of-many")
        told = lines.named("engine.arguments")
        assert len(told) == count
        assert all('"max_batch_size": 8' in line["values"] for line in told)
        assert SECRET not in str(told)
