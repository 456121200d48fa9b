"""Our three packages have generic names: what would be imported in their place is named, and never run."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from service import origin
from service.origin import ForeignPackage, check_origins

BIN = Path(sys.executable).parent
MODULE = [sys.executable, "-m", "service"]
SCRIPT = [str(BIN / "dynamo-actor-worker")]
RUN = "raise SystemExit('the decoy was run')\n"
PATIENCE_S = 15.0


def run(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, "--version"],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def lay_decoy(folder: Path, package: str, *, is_package: bool) -> Path:
    """A file of somebody else's under one of our names."""
    decoy = folder / package / "__init__.py" if is_package else folder / f"{package}.py"
    decoy.parent.mkdir(exist_ok=True)
    decoy.write_text(RUN, encoding="utf-8")
    return decoy


def check_named(result: subprocess.CompletedProcess[str], decoy: Path) -> None:
    assert result.returncode == 2
    assert str(decoy) in result.stderr
    assert "the decoy was run" not in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("package", ["actors", "protocols"])
@pytest.mark.parametrize("is_package", [True, False])
def test_a_decoy_in_the_working_directory_is_named_and_not_run(
    tmp_path: Path, package: str, is_package: bool
) -> None:
    """``python -m`` looks there first: exit 2, whatever else was asked, even --version."""
    decoy = lay_decoy(tmp_path, package, is_package=is_package)
    check_named(run(MODULE, tmp_path), decoy)


def test_the_console_script_does_not_look_into_the_working_directory(tmp_path: Path) -> None:
    """A decoy where it cannot be imported from is nobody's business."""
    lay_decoy(tmp_path, "actors", is_package=False)
    result = run(SCRIPT, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("package", ["actors", "protocols"])
def test_a_decoy_on_pythonpath_is_named_by_the_console_script(tmp_path: Path, package: str) -> None:
    """There the console script would find it."""
    decoy = lay_decoy(tmp_path, package, is_package=True)
    check_named(run(SCRIPT, Path.cwd(), PYTHONPATH=str(tmp_path)), decoy)


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["module", "script"])
def test_a_folder_that_is_no_package_stands_in_nobodys_way(tmp_path: Path, command: list[str]) -> None:
    """A folder of data with one of our names."""
    (tmp_path / "actors").mkdir()
    (tmp_path / "actors" / "lines.txt").write_text("To be, or not to be", encoding="utf-8")
    assert run(command, tmp_path).returncode == 0


def test_the_installed_packages_are_ours() -> None:
    """This environment's own."""
    check_origins()


def test_without_the_distribution_nothing_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that was never installed says what to do."""

    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(ForeignPackage, match="make setup"):
        check_origins()


class Installed:
    """A distribution in site-packages, or an editable one."""

    def __init__(self, site: Path, direct_url: str | None) -> None:
        self._site = site
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._direct_url

    def locate_file(self, path: str) -> Path:
        return self._site / path


@pytest.mark.parametrize(
    ("direct_url", "expected"),
    [
        (None, "site"),
        ('{"url": "file:///tmp/a%20checkout", "dir_info": {"editable": true}}', "/tmp/a checkout"),
        ('{"url": "file:///tmp/built", "dir_info": {}}', "site"),
        ('{"url": "https://host/x.whl", "archive_info": {}}', "site"),
    ],
)
def test_home_is_where_the_distribution_was_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: str | None, expected: str
) -> None:
    """An editable checkout is home itself; everything else lies in site-packages."""
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed(tmp_path, direct_url))
    assert origin._home() == (tmp_path if expected == "site" else Path(expected))


def test_a_package_that_is_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an installation: which part is missing, and where it should be."""
    monkeypatch.setattr(origin, "PACKAGES", ("service", "no_such_package_of_ours"))
    with pytest.raises(ForeignPackage, match="'no_such_package_of_ours' would come from nowhere"):
        check_origins()
