"""Promises of the set-up: it does what is needed, and nothing when nothing is."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tools import lock, setup_venv

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = '[build-system]\nrequires = []\n[project]\nname = "x"\n[tool.ruff]\nline-length = 110\n'


class Installation:
    """Stands in for pip: counts, and can be broken."""

    def __init__(self) -> None:
        self.runs = 0
        self.is_broken = False

    def __call__(self, root: Path, venv: Path) -> None:
        """Take the place of `install`."""
        self.runs += 1
        if self.is_broken:
            raise KeyboardInterrupt


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the files that set-up reads."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / setup_venv.LOCK).write_text("anyio==4.16.0\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch) -> Installation:
    """Replace the two steps that take long: making the environment becomes making its folder, empty."""
    counted = Installation()

    def make_environment(command: list[str], check: bool) -> None:
        assert "--clear" in command
        shutil.rmtree(command[-1], ignore_errors=True)
        Path(command[-1]).mkdir()

    monkeypatch.setattr(setup_venv, "install", counted)
    monkeypatch.setattr(subprocess, "run", make_environment)
    return counted


def test_a_second_run_does_nothing(
    checkout: Path, installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """When nothing changed nothing is installed and nothing is printed."""
    setup_venv.set_up(checkout)
    capsys.readouterr()
    setup_venv.set_up(checkout)
    assert (installation.runs, capsys.readouterr().out) == (1, "")


@pytest.mark.parametrize("changed", [str(setup_venv.LOCK), "pyproject.toml"])
def test_a_change_is_installed_on_top(checkout: Path, installation: Installation, changed: str) -> None:
    """Another lock or other requirements refresh the environment without throwing it away."""
    setup_venv.set_up(checkout)
    (checkout / ".venv" / "kept").touch()
    file = checkout / changed
    file.write_text(
        file.read_text(encoding="utf-8").replace("x", "y").replace("4.16.0", "4.16.1"), encoding="utf-8"
    )
    setup_venv.set_up(checkout)
    assert installation.runs == 2
    assert (checkout / ".venv" / "kept").exists()


def test_settings_of_tools_do_not_count(checkout: Path, installation: Installation) -> None:
    """Another line length is no reason to install anything."""
    setup_venv.set_up(checkout)
    (checkout / "pyproject.toml").write_text(PROJECT.replace("110", "100"), encoding="utf-8")
    setup_venv.set_up(checkout)
    assert installation.runs == 1


def test_an_interrupted_run_is_started_afresh(
    checkout: Path, installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an interrupted run left is never taken for an environment, also when it was a refresh."""
    setup_venv.set_up(checkout)
    (checkout / setup_venv.LOCK).write_text("anyio==4.15.0\n", encoding="utf-8")
    installation.is_broken = True
    with pytest.raises(KeyboardInterrupt):
        setup_venv.set_up(checkout)
    (checkout / ".venv" / "half-installed").touch()
    installation.is_broken = False
    setup_venv.set_up(checkout)
    assert not (checkout / ".venv" / "half-installed").exists()
    assert "not finished by an earlier run" in capsys.readouterr().out


def test_the_size_is_said_before_anything_is_fetched(
    checkout: Path, installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reader of a first run knows what is coming and how to choose another torch."""
    installation.is_broken = True
    with pytest.raises(KeyboardInterrupt):
        setup_venv.set_up(checkout)
    said = capsys.readouterr().out
    assert "MB of downloads" in said
    assert "PIP_EXTRA_INDEX_URL" in said


def test_an_old_python_is_refused_by_name(tmp_path: Path) -> None:
    """An interpreter below 3.11 gets one clear line and exit code 2 of make."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.18\nexit 1\n', encoding="utf-8")
    old.chmod(0o755)
    command = ["make", "--no-print-directory", "setup", f"PYTHON={old}"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=20, check=False)
    assert result.returncode == 2
    assert "Python 3.8.18 is not usable, Python 3.11 or newer is needed" in result.stderr


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("torch==2.13.0+cpu  # via x", "torch==2.13.0  # via x"),
        ("anyio==4.16.0  # via a+b", "anyio==4.16.0  # via a+b"),
    ],
)
def test_the_lock_loses_the_build_of_one_machine(line: str, kept: str) -> None:
    """A local version is cut off a pin, and nothing else is."""
    assert lock.LOCAL_VERSION.sub(r"\1", line) == kept
