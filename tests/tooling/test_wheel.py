"""Promises of the built distribution."""

import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {"actors", "protocols", "service"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build the wheel from this checkout without network; return the names of its files."""
    out = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(REPOSITORY),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (built,) = out.glob("*.whl")
    with ZipFile(built) as archive:
        return archive.namelist()


@pytest.mark.timeout(60)
def test_the_wheel_holds_three_packages_and_nothing_else(wheel: list[str]) -> None:
    """Tests, tools and manifests stay out of the wheel."""
    top_level = {name.partition("/")[0] for name in wheel if ".dist-info/" not in name}
    assert top_level == PACKAGES


def test_every_package_says_it_is_typed(wheel: list[str]) -> None:
    """Each of the three carries py.typed, so that the users' type checkers look inside."""
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel)


def test_the_wheel_holds_every_file_of_the_packages(wheel: list[str]) -> None:
    """No module is lost on the way into the wheel, nor what modules read: the page of a trace."""
    files = {
        file.relative_to(REPOSITORY).as_posix()
        for package in PACKAGES
        for file in (REPOSITORY / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "service/inspection/page/page.html" in files
    assert files <= set(wheel)


def test_the_licence_travels_with_the_wheel(wheel: list[str]) -> None:
    """The licence text is part of the distribution."""
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)


def test_the_project_file_names_the_console_script() -> None:
    """The daemon's command is `dynamo-actor-worker`."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"dynamo-actor-worker": "service.main:entry_point"}
