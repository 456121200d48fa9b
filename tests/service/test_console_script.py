"""The console script as a shell sees it: words in, text and exit codes out. No worker is started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from tests.e2e.word_model import write_word_model

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 18.0
# Nothing of the developer's own settings may decide these tests.
FOREIGN = ("DYN_", "ETCD_", "NATS_", "KUBERNETES_", "HF_")


def run(*words: str, folder: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return subprocess.run(
        [sys.executable, "-m", "service", *words],
        cwd=folder,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def problems(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a refusal, without their prefix."""
    assert "Traceback" not in result.stderr
    prefix = "dynamo-actor-worker: "
    return [line.removeprefix(prefix) for line in result.stderr.splitlines() if line.startswith(prefix)]


def test_version() -> None:
    """The distribution's own."""
    result = run("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"dynamo-actor-worker {metadata.version('dynamo-actor-worker')}\n"


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--nonsense", "--help"]])
def test_help_is_given_however_wrong_the_rest_is(words: list[str]) -> None:
    """All options, on stdout."""
    result = run(*words)
    assert (result.returncode, result.stderr) == (0, "")
    assert "--drain-timeout" in result.stdout


def test_print_config_shows_every_value_with_its_source() -> None:
    """A flag, a variable and a default, and secrets masked; nothing is started."""
    result = run(
        "--print-config", "--engine", "synthetic", "--max-live", "7",
        DYN_ACTOR_STALL_TIMEOUT="12", DYN_ACTOR_CONTROL_TOKEN="do-not-show-me",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "7" in lines["--max-live"]
    assert "--max-live" in lines["--max-live"].split(maxsplit=1)[1]
    assert "DYN_ACTOR_STALL_TIMEOUT" in lines["--stall-timeout"]
    assert "default" in lines["--drain-timeout"]
    assert "do-not-show-me" not in result.stdout + result.stderr


def test_check_config_of_a_good_configuration_ends_with_0(tmp_path: Path) -> None:
    """Findings on stdout, none of them an error."""
    model = write_word_model(tmp_path / "model")
    result = run("--check-config", "--engine", "synthetic", "--model", str(model))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "synthetic (asked for" in result.stdout


def test_check_config_of_a_bad_one_ends_with_2(tmp_path: Path) -> None:
    """The folder is not there."""
    result = run("--check-config", "--engine", "synthetic", "--model", str(tmp_path / "nowhere"))
    assert result.returncode == 2
    assert "nowhere" in result.stdout


@pytest.mark.parametrize("action", [[], ["--check-config"], ["--print-config"]])
def test_every_problem_is_named_at_once(action: list[str]) -> None:
    """Four mistakes, four lines, exit 2; the operator need not come back four times."""
    result = run(
        *action, "--max-live", "-3", "--no-such-flag", "--engine", "steam", DYN_ACTOR_CHUNK_TOKENS="many"
    )
    assert result.returncode == 2
    named = problems(result)
    for where in ("--max-live", "--no-such-flag", "--engine", "DYN_ACTOR_CHUNK_TOKENS"):
        assert [line for line in named if line.startswith(f"{where}:")], (where, named)
    assert result.stdout == ""


def test_an_unknown_command_is_refused_with_the_nearest() -> None:
    """A word that is none of ours."""
    result = run("statsu")
    assert result.returncode == 2
    assert "status" in problems(result)[0]


def test_a_model_that_is_not_there_ends_the_start_with_2(tmp_path: Path) -> None:
    """Before the framework is started, in our own words."""
    result = run("--engine", "synthetic", "--model", str(tmp_path / "nowhere"))
    assert result.returncode == 2
    assert any("nowhere" in line for line in problems(result))


def test_a_configuration_file_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    """Named, with what is wrong with it."""
    broken = tmp_path / "worker.yaml"
    broken.write_text("max-live: [1, 2\n", encoding="utf-8")
    result = run("--print-config", "--config", str(broken))
    assert result.returncode == 2
    assert any("worker.yaml" in line for line in problems(result))


@pytest.mark.parametrize("command", ["drain", "resume", "status", "trace"])
def test_a_control_command_without_an_address_ends_with_2(command: str) -> None:
    """It says how to give one."""
    result = run(command)
    assert result.returncode == 2
    assert "--url" in problems(result)[0]


def test_a_control_command_that_nobody_answers_ends_with_69() -> None:
    """A port that is closed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = run("status", DYN_SYSTEM_PORT=str(port))
    assert result.returncode == 69
    assert str(port) in problems(result)[0]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999", "http://127.0.0.1:port", "http://[::1", "ftp://127.0.0.1:21"]
)
def test_an_address_that_is_none_ends_with_2(url: str) -> None:
    """Refused, not crashed over."""
    result = run("status", "--url", url)
    assert result.returncode == 2
    assert url in problems(result)[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>", "no worker of ours"),
        (b"[]", "no worker of ours"),
        (b"{}", "no worker of ours"),
        (b'"state"', "no worker of ours"),
        (b'{"status": "error", "message": "shutting down"}', "refused: shutting down"),
    ],
)
def test_an_answer_that_is_not_the_workers_is_refused(answer: bytes, said: str) -> None:
    """Another server has the port, or the framework answers in the worker's place."""

    class Somebody(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Somebody) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        result = run("status", "--url", f"127.0.0.1:{server.server_port}")
        thread.join(PATIENCE_S)
    assert result.returncode == 1
    assert said in problems(result)[0]
