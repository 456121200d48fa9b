"""Promises of .ci/run, with a `make` that does what the test says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def run_ci(checkout: Path, make: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script where `make` is the given shell code; $1 is the target."""
    (checkout / ".ci").mkdir()
    shutil.copy(REPOSITORY / ".ci" / "run", checkout / ".ci" / "run")
    (checkout / "make").write_text(f'#!/bin/sh\necho "ran $1 $REQUIRE_TOOLS"\n{make}\n', encoding="utf-8")
    (checkout / "make").chmod(0o755)
    environ = os.environ | {"PATH": f"{checkout}:{os.environ['PATH']}"}
    command = ["bash", str(checkout / ".ci" / "run")]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20, check=False)


def test_all_stages_run_and_the_last_line_counts(tmp_path: Path) -> None:
    """All stages run in this order, none may skip, and the end says what was tested."""
    counts = "7 passed, 0 failed, 0 error, 0 skipped, 1 xfailed, 0 xpassed"
    result = run_ci(tmp_path, f'[ "$1" = test ] && echo "counts: {counts}"; exit 0')
    ran = [line for line in result.stdout.splitlines() if line.startswith("ran ")]
    stages = ("setup", "tools", "check", "test", "faults", "trtllm", "compat", "deployed", "soak")
    assert (result.returncode, ran) == (0, [f"ran {stage} 1" for stage in stages])
    assert result.stdout.splitlines()[-1].endswith(counts)


@pytest.mark.parametrize(("stage", "later"), [("setup", "tools"), ("tools", "check"), ("check", "test")])
def test_a_failing_stage_ends_the_run(tmp_path: Path, stage: str, later: str) -> None:
    """Its exit code is the run's, although its output went through a pipe, and no later stage runs."""
    result = run_ci(tmp_path, f'[ "$1" = {stage} ] && exit 5; exit 0')
    assert result.returncode == 5
    assert f"ran {later}" not in result.stdout


@pytest.mark.parametrize("stage", ["compat", "deployed"])
def test_of_two_stages_at_once_either_can_fail_the_run(tmp_path: Path, stage: str) -> None:
    """Both are run to their end and shown; the exit code is the failed one's, and nothing comes after it."""
    counts = "7 passed, 0 failed, 0 error, 0 skipped, 0 xfailed, 0 xpassed"
    result = run_ci(
        tmp_path, f'[ "$1" = test ] && echo "counts: {counts}"; [ "$1" = {stage} ] && exit 5; exit 0'
    )
    assert result.returncode == 5
    assert {"ran compat 1", "ran deployed 1"} <= set(result.stdout.splitlines())
    assert "ran soak" not in result.stdout


def test_failing_tests_fail_the_run(tmp_path: Path) -> None:
    """Counts alone do not make a green run."""
    result = run_ci(tmp_path, '[ "$1" = test ] && { echo "counts: 1 passed, 1 failed"; exit 1; }; exit 0')
    assert result.returncode == 1
    assert "ci: ok" not in result.stdout


def test_a_run_without_tests_is_not_green(tmp_path: Path) -> None:
    """A test stage that ends well but printed no counts ran nothing."""
    result = run_ci(tmp_path, "exit 0")
    assert result.returncode == 1
    assert "no counts" in result.stderr
