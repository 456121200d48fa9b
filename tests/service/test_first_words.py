"""The line that says how a worker was told to run."""

from __future__ import annotations

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
        say_configuration(settings, "synthetic")
    (line,) = lines.named("worker.configured")
    given = line.pop("given")
    assert SECRET not in lines.text
    assert "--engine=synthetic" in given
    assert "--drain-timeout=20" in given
    assert "DYN_ACTOR_MAX_LIVE=7" in given
    assert "DYN_ACTOR_CONTROL_TOKEN=" in given
    assert "--model=" not in given
    assert len(given) < 500
    facts = (
        "engine",
        "system_server",
        "max_live",
        "drain_until_s",
        "hard_exit_s",
        "endpoint",
        "request_plane",
    )
    assert {name: line[name] for name in facts} == {
        "engine": "synthetic",
        "system_server": "127.0.0.1:9345",
        "max_live": 7,
        "drain_until_s": 25,
        "hard_exit_s": 40,
        "endpoint": "dynamo.backend.generate",
        "request_plane": "tcp",
    }
