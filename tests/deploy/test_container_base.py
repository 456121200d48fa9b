"""Adding the worker to somebody else's environment: nothing that is there may change, or the build fails."""

from __future__ import annotations

import importlib.util
import json
import stat
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.deploy.compose_files import DEPLOY

# Plays uv: knows the packages of a table, pins what is asked for, and "installs" by writing their metadata.
UV = """\
import json, os, pathlib, re, sys
words = sys.argv[1:]
script = json.loads(os.environ["UV_SCRIPT"])
site = pathlib.Path(script["site"])
def put(name, version):
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    needs = "".join(f"Requires-Dist: {need}\\n" for need in script["index"].get(name, [version, []])[1])
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n{needs}")
if words[:2] == ["pip", "compile"]:
    asked = re.findall(r"^\\w+", pathlib.Path(words[-1]).read_text(), re.MULTILINE)
    out = pathlib.Path(words[words.index("--output-file") + 1])
    pathlib.Path(script["seen"]).write_text(pathlib.Path(words[words.index("--constraint") + 1]).read_text())
    pins = {name: script["index"][name][0] for name in asked}
    for name in asked:
        for need in script["index"][name][1]:
            pins.setdefault(need, script["index"][need][0])
    out.write_text("".join(f"{name}=={version}\\n" for name, version in pins.items()))
else:
    assert "--no-deps" in words, "it would look for what the base has elsewhere, too"
    for word in words[words.index("--python") + 2 :]:
        if word.endswith(".whl"):
            put(*script["wheel"])
        else:
            put(*word.split("=="))
    for old in script.get("takes away", []):
        (site / old / "METADATA").unlink()
        (site / old).rmdir()
    for name, version in script.get("puts", []):
        put(name, version)
raise SystemExit(script.get("status", 0))
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The file itself: it is no part of a package."""
    spec = importlib.util.spec_from_file_location("add", DEPLOY / "container" / "add_to_environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def put(site: Path, name: str, version: str) -> None:
    """What an installed distribution says of itself."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")


class Base:
    """An environment with some packages, a wheel to add to it, and a uv that does as it is told."""

    def __init__(self, folder: Path, there: Mapping[str, str], needs: Sequence[str]) -> None:
        self.site = folder / "site"
        self.site.mkdir()
        for name, version in there.items():
            put(self.site, name, version)
        self.wheel = folder / "worker-1.0-py3-none-any.whl"
        needed = "".join(f"Requires-Dist: {need}\n" for need in needs)
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(
                "worker-1.0.dist-info/METADATA",
                f"Metadata-Version: 2.1\nName: worker\nVersion: 1.0\n{needed}",
            )
        self.seen = folder / "constraints.txt"
        self.uv = folder / "uv"
        self.uv.write_text(f"#!{sys.executable}\n{UV}", encoding="utf-8")
        self.uv.chmod(self.uv.stat().st_mode | stat.S_IXUSR)

    def does(
        self, monkeypatch: pytest.MonkeyPatch, index: Mapping[str, tuple[str, list[str]]], **misdeeds: object
    ) -> None:
        """What uv finds on its index, and what it does besides."""
        told = {"site": str(self.site), "seen": str(self.seen), "index": index, "wheel": ["worker", "1.0"]}
        monkeypatch.setenv("UV_SCRIPT", json.dumps({**told, **misdeeds}))


def test_only_what_is_not_there_is_added(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there goes to the resolver as it is, previews and builds of its own included, and stays."""
    there = {"torch": "2.10.0a0+b4e4ee8", "odd": "unknown"}
    base = Base(tmp_path, there, ["torch>=2.9", "structlog>=25", "rich; extra == 'dev'"])
    base.does(monkeypatch, {"structlog": ("25.1", [])})
    assert script.add(base.wheel, "", [str(base.site)], str(base.uv)) == ["structlog==25.1"]
    # But for what no resolver would understand.
    assert base.seen.read_text(encoding="utf-8") == "torch==2.10.0a0+b4e4ee8\n"
    assert script.versions([str(base.site)]) == {**there, "structlog": "25.1", "worker": "1.0"}


def test_what_an_added_package_needs_is_added_too(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is installed without what it depends on, so all of it has to be named."""
    base = Base(tmp_path, {"numpy": "2.3"}, ["gguf"])
    base.does(monkeypatch, {"gguf": ("0.19", ["tqdm", "numpy"]), "tqdm": ("4.70", []), "numpy": ("9.9", [])})
    assert script.add(base.wheel, "", [str(base.site)], str(base.uv)) == ["gguf==0.19", "tqdm==4.70"]


def test_of_two_of_a_name_the_one_that_is_imported_counts(script: ModuleType, tmp_path: Path) -> None:
    """A base may have a package of its distribution behind its own: Python takes the first of the path."""
    for site, version in (("own", "2.10"), ("distribution", "2.9")):
        put(tmp_path / site, "torch", version)
    path = [str(tmp_path / site) for site in ("own", "distribution")]
    assert script.versions(path) == {"torch": "2.10"}
    assert script.versions(path[::-1]) == {"torch": "2.9"}


def test_a_package_that_is_too_old_is_named_and_nothing_is_installed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is touched: the base's version, and what the worker needs."""
    base = Base(tmp_path, {"rich": "13.0", "odd": "unknown"}, ["rich>=14", "odd>=1"])
    base.does(monkeypatch, {})
    with pytest.raises(script.Refused) as caught:
        script.add(base.wheel, "", [str(base.site)], str(base.uv))
    assert str(caught.value).splitlines() == [
        "rich 13.0 is there, needed is rich>=14",
        "odd unknown is there, needed is odd>=1",
    ]
    assert "worker" not in script.versions([str(base.site)])


@pytest.mark.parametrize(
    ("misdeeds", "reason"),
    [
        (
            {"takes away": ["torch-2.9.dist-info"], "puts": [["torch", "2.13"]]},
            "torch was 2.9 and is 2.13",
        ),
        ({"takes away": ["torch-2.9.dist-info"]}, "torch was 2.9 and is gone"),
        (
            {"puts": [["extra", "1.0"]]},
            "absent is missing for extra",
        ),
    ],
)
def test_an_installer_that_changes_what_is_there_fails_the_build(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    misdeeds: dict[str, object],
    reason: str,
) -> None:
    """Whatever it was told: what was there is compared afterwards, and what came must be complete."""
    base = Base(tmp_path, {"torch": "2.9"}, ["torch"])
    base.does(monkeypatch, {"extra": ("1.0", ["absent"])}, **misdeeds)
    with pytest.raises(script.Refused, match=reason):
        script.add(base.wheel, "", [str(base.site)], str(base.uv))


def test_an_installer_that_fails_is_a_refusal(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half-made image."""
    base = Base(tmp_path, {}, [])
    base.does(monkeypatch, {}, status=3)
    with pytest.raises(script.Refused, match="pip install failed"):
        script.add(base.wheel, "", [str(base.site)], str(base.uv))
