"""The framework's file of log filters: what it cannot follow is refused by name before it reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.options.errors import ConfigError
from service.telemetry.filter_file import check_filter_files, has_filter_file

_ROOT = Path(__file__).parents[3]


def _environ(folder: Path, text: str) -> dict[str, str]:
    file = folder / "logging.toml"
    file.write_text(text, encoding="utf-8")
    return {"DYN_LOGGING_CONFIG_PATH": str(file)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        'log_level = "WARN"',
        'log_level = "3"',
        '[log_filters]\n"service.kv" = "debug"\nh2 = "off"',
        'other = "key"',
    ],
)
def test_what_the_framework_follows_is_let_through(tmp_path: Path, text: str) -> None:
    """Also keys that it does not know."""
    environ = _environ(tmp_path, text)
    check_filter_files(environ)
    assert has_filter_file(environ)


@pytest.mark.parametrize(
    "environ", [{}, {"DYN_LOGGING_CONFIG_PATH": ""}, {"DYN_LOGGING_CONFIG_PATH": "/no/such"}]
)
def test_no_file_is_no_problem(environ: dict[str, str]) -> None:
    """As for the framework."""
    check_filter_files(environ)
    assert not has_filter_file(environ)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[[", "a TOML file"),
        ('log_level = "loud"', "log_level: value 'loud'"),
        ("log_level = 5", "log_level: value 5"),
        ("log_filters = 5", "log_filters: value 5"),
        ('[log_filters]\nservice = "warning"', "log_filters: service: value 'warning'"),
    ],
)
def test_what_it_cannot_follow_is_named(tmp_path: Path, text: str, words: str) -> None:
    """The file, the place, the value, and what is allowed."""
    with pytest.raises(ConfigError) as refusal:
        check_filter_files(_environ(tmp_path, text))
    assert words in str(refusal.value)
    assert "logging.toml" in str(refusal.value)


def test_a_worker_with_a_broken_file_ends_with_one_line(tmp_path: Path) -> None:
    """Exit code 2, and not the framework's traceback."""
    ended = subprocess.run(
        [sys.executable, "-m", "service", "--check-config"],
        env={**os.environ, **_environ(tmp_path, "[[[")},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("dynamo-actor-worker: DYN_LOGGING_CONFIG_PATH")
