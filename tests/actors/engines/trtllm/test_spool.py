"""The spool: what happens in the engine's process reaches the driver, and never the other way round."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from actors.engines.trtllm.processors.spool import Spool, SpoolReport
from actors.engines.trtllm.processors.spool_pages import BLOCK_BYTES, FILE_BYTES, MOST_BLOCKS
from actors.engines.trtllm.processors.spool_writer import SpoolWriter
from protocols.bounds import Bound
from protocols.errors import EngineStartError, StartFault
from protocols.steps import EngineId, ProcessorUse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE, TWO = EngineId(1), EngineId(2)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """In a folder of the test."""
    spool = Spool.make([tmp_path])
    yield spool
    spool.remove()


def test_nobody_else_may_read_it(spool: Spool) -> None:
    """Folder and files belong to the worker alone."""
    spool.open(ONE, ["a"])
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((spool.folder / "1").stat().st_mode) == 0o600


def test_what_was_used_is_told_once(spool: Spool) -> None:
    """What is new since the last time, by the processors' names."""
    writer = SpoolWriter(spool.open(ONE, ["a", "b"]))
    assert spool.read(ONE) == SpoolReport()
    assert writer.write([(1, 0.5), (0, 0.0)], None)
    assert spool.read(ONE) == SpoolReport(None, (ProcessorUse("a", 1, 0.5),), is_heard=True)
    assert spool.read(ONE) == SpoolReport(None, (), is_heard=True)
    writer.write([(2, 0.75), (1, 2.0)], None)
    writer.write([(3, 1.0), (1, 2.0)], None)
    assert spool.read(ONE).uses == (ProcessorUse("a", 2, 0.5), ProcessorUse("b", 1, 2.0))


def test_a_failure_stays(spool: Spool) -> None:
    """However often it is read, and whatever is written afterwards."""
    writer = SpoolWriter(spool.open(ONE, ["a"]))
    writer.write([(1, 0.0)], "failed")
    assert spool.read(ONE).failure == "failed"
    writer.write([(2, 0.0)], None)
    assert spool.read(ONE).failure == "failed"


def test_what_took_too_long_reaches_a_bound_once(tmp_path: Path) -> None:
    """As with engine torch: a bound that is reached is counted."""
    reached: Counter[Bound] = Counter()

    def on_bound(bound: Bound, count: int = 1) -> None:
        reached[bound] += count

    spool = Spool.make([tmp_path], on_bound)
    SpoolWriter(spool.open(ONE, ["a"])).write([(1, 10.0)], "failed")
    SpoolWriter(spool.open(TWO, ["a"])).write([(1, 10.0)], "too long", is_interrupted=True)
    for _ in range(2):
        assert [spool.read(each).failure for each in (ONE, TWO)] == ["failed", "too long"]
    assert reached == {Bound.FOREIGN_TIME: 1}
    spool.remove()


def test_requests_know_nothing_of_each_other(spool: Spool) -> None:
    """A file each."""
    SpoolWriter(spool.open(ONE, ["a"])).write([(1, 1.0)], "failed")
    SpoolWriter(spool.open(TWO, ["b"])).write([(2, 2.0)], None)
    assert spool.read(TWO) == SpoolReport(None, (ProcessorUse("b", 2, 2.0),), is_heard=True)


def test_ranks_do_the_same_work_and_one_counts(spool: Spool) -> None:
    """But any of them may fail."""
    path = spool.open(ONE, ["a"])
    first, second = SpoolWriter(path), SpoolWriter(path)
    first.write([(1, 1.0)], None)
    second.write([(1, 3.0)], None)
    second.write([(2, 4.0)], "failed")
    assert spool.read(ONE) == SpoolReport("failed", (ProcessorUse("a", 1, 1.0),), is_heard=True)


def test_a_file_has_a_bound(spool: Spool) -> None:
    """Pages are written over, and not more processes than that get a block."""
    path = spool.open(ONE, ["a"])
    assert all(SpoolWriter(path).write([(1, 0.0)], None) for _ in range(MOST_BLOCKS))
    assert not SpoolWriter(path).write([(1, 0.0)], "failed")
    last = SpoolWriter(spool.open(TWO, ["a"]))
    for calls in range(100):
        last.write([(calls, 0.0)], "failed " * 1000)
    assert (spool.folder / "1").stat().st_size == FILE_BYTES
    assert (spool.folder / "2").stat().st_size == BLOCK_BYTES


def test_a_request_that_is_closed_is_gone(spool: Spool) -> None:
    """What the engine still writes makes no file again, and nothing can be read of it."""
    writer = SpoolWriter(spool.open(ONE, ["a"]))
    spool.close(ONE)
    spool.close(ONE)
    assert not writer.write([(1, 0.0)], "failed")
    assert spool.read(ONE) == SpoolReport()
    assert list(spool.folder.iterdir()) == []


def test_nothing_is_left_at_the_end(spool: Spool) -> None:
    """And who comes late gets no error."""
    writer = SpoolWriter(spool.open(ONE, ["a"]))
    writer.write([(1, 0.0)], "failed")
    assert spool.read(ONE).failure == "failed"
    spool.remove()
    spool.remove()
    assert not spool.folder.exists()
    assert not writer.write([(1, 0.0)], None)
    assert spool.read(ONE) == SpoolReport()
    spool.close(ONE)


def test_what_a_crashed_worker_left_is_not_read(tmp_path: Path) -> None:
    """Every worker has a folder of its own."""
    crashed, mine = Spool.make([tmp_path]), Spool.make([tmp_path])
    SpoolWriter(crashed.open(ONE, ["a"])).write([(1, 1.0)], "failed")
    mine.open(ONE, ["a"])
    assert mine.read(ONE) == SpoolReport()


def test_a_file_that_is_destroyed_says_nothing(spool: Spool) -> None:
    """Garbage, half a block, or no file at all: what was read before stays known."""
    path = spool.open(ONE, ["a"])
    writer = SpoolWriter(path)
    writer.write([(1, 0.0)], None)
    assert spool.read(ONE).is_heard
    for content in (b"\xff" * BLOCK_BYTES, b"\0" * 100, b""):
        (spool.folder / "1").write_bytes(content)
        assert spool.read(ONE) == SpoolReport(None, (), is_heard=True)
    (spool.folder / "1").unlink()
    assert spool.read(ONE) == SpoolReport(None, (), is_heard=True)


def test_another_place_is_tried(tmp_path: Path) -> None:
    """And where there is none, the start fails with all that were tried: memory that is full may get free."""
    nowhere = tmp_path / "nowhere"
    assert Spool.make([nowhere, tmp_path]).folder.parent == tmp_path
    with pytest.raises(EngineStartError, match=r"No folder can be made in .*nowhere") as caught:
        Spool.make([nowhere])
    assert "TMPDIR" in caught.value.hint
    assert caught.value.fault is StartFault.UNAVAILABLE


def test_a_full_disk_reaches_nobody(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the engine nor the page before; when there is room again, everything comes after all."""
    path = spool.open(ONE, ["a"])
    early, late = SpoolWriter(path), SpoolWriter(path)
    assert early.write([(1, 0.0)], None)
    write = os.pwrite

    def half(file: int, data: bytes, at: int) -> int:
        return write(file, data[:20], at)

    def full(file: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    for broken in (half, full):
        monkeypatch.setattr(os, "pwrite", broken)
        assert not early.write([(2, 0.0)], "failed")
        assert not late.write([(2, 0.0)], "failed")
        assert spool.read(ONE).failure is None
    monkeypatch.undo()
    assert early.write([(3, 0.0)], None)
    assert late.write([(3, 0.0)], "failed")
    assert spool.read(ONE).failure == "failed"


@pytest.mark.parametrize("whole", [1, 2, 3])
def test_a_page_that_is_torn_leaves_the_last_whole_one(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """However often: it is written again to the same place."""
    writer = SpoolWriter(spool.open(ONE, ["a"]))
    for calls in range(1, whole + 1):
        assert writer.write([(calls, 0.5)], None)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:20], at))
    for _ in range(3):
        assert not writer.write([(99, 0.5)], "torn")
    assert spool.read(ONE) == SpoolReport(None, (ProcessorUse("a", whole, 0.5),), is_heard=True)


def test_a_reader_never_sees_half_a_page(spool: Spool) -> None:
    """While several ranks write as fast as they can: calls and seconds are always of the same moment."""
    path = spool.open(ONE, ["a"])
    begun = threading.Barrier(4)

    def write() -> None:
        writer = SpoolWriter(path)
        begun.wait()
        for calls in range(1, 500):
            writer.write([(calls, 2.0 * calls)] * 20, None)

    ranks = [threading.Thread(target=write) for _ in range(3)]
    for rank in ranks:
        rank.start()
    begun.wait()
    told, seconds = 0, 0.0
    while told < 499:
        for use in spool.read(ONE).uses:
            told, seconds = told + use.tokens, seconds + use.seconds
            assert seconds == 2.0 * told
    for rank in ranks:
        rank.join()
