"""``--check-config``: findings a line each, exit code 0 or 2."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from service.options import (
    EngineFacts,
    Finding,
    check_settings,
    exit_code_of,
    findings_text,
    read_engine_facts,
)
from tests.service.options.world import TORCH_ONLY, load

if TYPE_CHECKING:
    from pathlib import Path


def _finding(subject: str, *argv: str, env: dict[str, str] | None = None) -> Finding:
    findings = check_settings(load(*argv, env=env), TORCH_ONLY, ["tiny-random"])
    return next(finding for finding in findings if finding.subject == subject)


def test_the_defaults_are_fine() -> None:
    """Nothing is wrong with a worker that was told nothing."""
    findings = check_settings(load(), TORCH_ONLY)
    assert exit_code_of(findings) == 0
    assert len(findings_text(findings).splitlines()) == len(findings)


def test_one_error_makes_the_exit_code_2() -> None:
    """Warnings do not."""
    assert exit_code_of([Finding("warning", "x", "y")]) == 0
    assert exit_code_of([Finding("ok", "x", "y"), Finding("error", "x", "y")]) == 2


def test_the_engine_that_would_run_is_named() -> None:
    """Or why none can."""
    assert _finding("engine").text == "torch (tensorrt-llm is not installed)"
    without = EngineFacts(tensorrt_installed=False, torch_installed=False, gpus=0)
    findings = check_settings(load(), without)
    assert exit_code_of(findings) == 2


@pytest.mark.parametrize("model", ["smollm2-135m", "tiny-random"])
def test_built_in_models_are_known(model: str) -> None:
    """By the names the caller brings, and the default."""
    assert _finding("model", "--model", model).level == "ok"


def test_a_model_folder_is_looked_into(tmp_path: Path) -> None:
    """Missing configuration is an error, a missing tokenizer a warning."""
    assert _finding("model", "--model", str(tmp_path)).level == "error"
    (tmp_path / "config.json").touch()
    assert _finding("model", "--model", str(tmp_path)).level == "warning"
    (tmp_path / "tokenizer.json").touch()
    assert _finding("model", "--model", str(tmp_path)).level == "ok"


@pytest.mark.parametrize(
    ("model", "level"),
    [("/no/such/folder", "error"), ("./none", "error"), ("a/b/c", "error"), ("owner/name", "warning")],
)
def test_names_of_models_are_told_from_paths(model: str, level: str) -> None:
    """A hub id cannot be checked without the network, a path can."""
    assert _finding("model", "--model", model).level == level


def _take_a_readable_port(taken: socket.socket) -> int:
    """Bind a port that the framework can read; the system hands out higher ones."""
    for port in range(20_000, 32_767):
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


def test_a_taken_port_is_an_error() -> None:
    """Found before the model is loaded."""
    with socket.socket() as taken:
        env = {"DYN_SYSTEM_PORT": str(_take_a_readable_port(taken))}
        taken.listen()
        assert _finding("system port", env=env).level == "error"
    assert _finding("system port", env=env).level == "ok"


def test_no_system_port_is_a_warning() -> None:
    """Health, metrics and control routes are off then."""
    assert _finding("system port").level == "warning"
    assert _finding("system port", env={"DYN_SYSTEM_PORT": "0"}).level == "ok"


def test_the_shutdown_plan_is_told() -> None:
    """With all its times."""
    assert "drain until 40 s, return by 53 s, hard exit at 55 s" in _finding("shutdown").text


def test_more_than_the_machine_has_is_reported() -> None:
    """Threads only warn, memory cannot work."""
    assert _finding("threads", "--threads", "1024").level == "warning"
    assert _finding("memory", "--memory-gb", "65536").level == "error"


def test_the_dump_must_be_writable(tmp_path: Path) -> None:
    """A folder is no file, and a missing folder holds none."""
    assert _finding("dump-config-to", "--dump-config-to", str(tmp_path / "dump.json")).level == "ok"
    assert _finding("dump-config-to", "--dump-config-to", str(tmp_path)).level == "error"
    assert _finding("dump-config-to", "--dump-config-to", str(tmp_path / "a" / "b")).level == "error"


def test_hidden_devices_do_not_count() -> None:
    """CUDA_VISIBLE_DEVICES empty or -1 means no GPU."""
    assert read_engine_facts({"CUDA_VISIBLE_DEVICES": ""}).gpus == 0
    assert read_engine_facts({"CUDA_VISIBLE_DEVICES": "-1"}).gpus == 0
