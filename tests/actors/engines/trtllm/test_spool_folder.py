"""Folders of spools: that of a killed worker is taken away by the next one, and nothing else ever is."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm.processors.spool import Spool
from actors.engines.trtllm.processors.spool_folder import PREFIX, SpoolFolder, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN_FILES = Path("/proc/self/fd")
# A worker with a file in its folder and a child that outlives it, as the processes of an engine may.
WORKER = """
import subprocess, sys
from pathlib import Path
from actors.engines.trtllm.processors.spool import Spool
from protocols.steps import EngineId

spool = Spool.make([Path(sys.argv[1])])
spool.open(EngineId(1), ["a"])
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(spool.folder, child.pid, flush=True)
input()
"""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A folder with a file, as a killed worker leaves it."""
    folder = tmp_path / f"{PREFIX}left"
    folder.mkdir()
    (folder / "1").write_bytes(b"page")
    return folder


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with a spool, and the folder."""
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, child = process.stdout.readline().split()
        yield process, tmp_path / folder
        process.kill()
        os.kill(int(child), signal.SIGKILL)


def test_a_killed_workers_folder_goes_with_the_next_start(
    worker: tuple[subprocess.Popen[str], Path], tmp_path: Path
) -> None:
    """Not before it is dead, and then be it that a process which it has started lives on."""
    process, folder = worker
    assert sweep(tmp_path) == 0
    assert (folder / "1").exists()
    process.kill()
    process.wait()
    mine = Spool.make([tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == [mine.folder.name]
    mine.remove()


def test_ones_own_folder_is_nobodys_leftover(tmp_path: Path) -> None:
    """Two engines of one process, one after the other or side by side."""
    first, second = SpoolFolder.make(tmp_path), SpoolFolder.make(tmp_path)
    assert sweep(tmp_path) == 0
    second.remove()
    assert sweep(tmp_path) == 0
    assert first.path.is_dir()
    first.remove()
    assert list(tmp_path.iterdir()) == []


def test_it_is_found_wherever_a_spool_may_be(left: Path, tmp_path: Path) -> None:
    """Memory may have been full when it was made; a place that does not exist has none."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    spool = Spool.make([tmp_path / "nowhere", elsewhere, tmp_path])
    assert spool.folder.parent == elsewhere
    assert not left.exists()
    spool.remove()


def test_what_a_link_leads_to_is_left_alone(left: Path, tmp_path: Path) -> None:
    """Be it one with our name, or one inside of a folder of ours."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").touch()
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(theirs)
    (left / "within").symlink_to(theirs)
    assert sweep(tmp_path) == 1
    assert link.is_symlink()
    assert (theirs / "precious").exists()


def test_what_is_no_folder_is_left_alone(tmp_path: Path) -> None:
    """A file, and a pipe, which would keep whoever opens it waiting."""
    (tmp_path / f"{PREFIX}file").touch()
    os.mkfifo(tmp_path / f"{PREFIX}pipe")
    assert sweep(tmp_path) == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_folders_of_others_are_left_alone(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even by root, who could take them away."""
    other = os.getuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert sweep(left.parent) == 0
    assert (left / "1").exists()


@pytest.mark.parametrize(
    "name", ["logits-processor-1", f"x{PREFIX}1", f".new-{PREFIX}1", "logits-processors"]
)
def test_other_names_are_left_alone(name: str, tmp_path: Path) -> None:
    """One that is being made has no lock yet, and another name."""
    (tmp_path / name).mkdir()
    assert sweep(tmp_path) == 0
    assert (tmp_path / name).is_dir()


def test_one_that_is_being_made_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker may start in the moment between its name and its lock."""
    swept: list[int] = []
    make = tempfile.mkdtemp

    def make_while_another_starts(*names: Any, **more: Any) -> str:
        made: str = make(*names, **more)
        swept.append(sweep(tmp_path))
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", make_while_another_starts)
    folder = SpoolFolder.make(tmp_path)
    assert swept == [0]
    assert folder.path.is_dir()
    folder.remove()


def test_one_whose_maker_was_killed_is_swept_later(tmp_path: Path) -> None:
    """When nobody can still be making it; then it is a leftover like any other."""
    half = tmp_path / f".new-{PREFIX}1"
    half.mkdir()
    assert sweep(tmp_path) == 0
    os.utime(half, (0, 0))
    assert sweep(tmp_path) == 1
    assert not half.exists()


def test_what_could_not_be_taken_away_does_not_count(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator is told what has gone, and nothing else."""
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    assert sweep(left.parent) == 0
    assert left.is_dir()


def test_no_lock_outlives_its_folder(left: Path) -> None:
    """Neither of one's own, nor of one that was swept or left alone: a worker has only so many open files."""
    open_before = {path.name for path in OPEN_FILES.iterdir()}
    folder = SpoolFolder.make(left.parent)
    assert sweep(left.parent) == 1
    assert sweep(left.parent) == 0
    folder.remove()
    assert {path.name for path in OPEN_FILES.iterdir()} == open_before


def test_without_locks_nothing_is_taken_away(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file system knows none, spools work all the same."""

    def refuse(_file: int, _how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = SpoolFolder.make(left.parent)
    assert sweep(left.parent) == 0
    assert left.is_dir()
    assert folder.path.is_dir()
    folder.remove()


def test_a_folder_that_cannot_be_finished_is_no_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the folder nor an open file of it."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    open_before = {path.name for path in OPEN_FILES.iterdir()}
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="full"):
        SpoolFolder.make(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert {path.name for path in OPEN_FILES.iterdir()} == open_before


def test_nobody_else_may_look_into_one(tmp_path: Path) -> None:
    """From its first moment on."""
    folder = SpoolFolder.make(tmp_path)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.remove()
    folder.remove()
