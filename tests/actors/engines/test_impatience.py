"""Foreign work on threads of its own: nobody waits too long, and what is stuck is counted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

import pytest

from actors.engines.impatience import ForeignFailure, ImpatientThreads, TookTooLong, TooManyStuck

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

PATIENT_S = 15.0


@pytest.fixture
def anyio_backend() -> str:
    """It waits for threads on asyncio's loop."""
    return "asyncio"


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end of the test, so that what is stuck gets away."""
    event = threading.Event()
    yield event
    event.set()


def threads() -> ImpatientThreads:
    return ImpatientThreads("impatient", 2)


async def test_it_returns_what_the_work_returns() -> None:
    """The result comes back, computed on a daemon thread of another name."""
    thread = await threads().run(threading.current_thread, PATIENT_S)
    assert (thread.name, thread.daemon) == ("impatient", True)


async def test_it_raises_what_the_work_raises() -> None:
    """An exception of the work is the caller's."""
    with pytest.raises(ZeroDivisionError):
        await threads().run(lambda: 1 // 0, PATIENT_S)


async def test_what_is_no_exception_becomes_one() -> None:
    """A panic, or a wish to leave the process, fails the work and nothing else."""

    def leave() -> NoReturn:
        raise SystemExit(3)

    with pytest.raises(ForeignFailure, match="SystemExit") as failed:
        await threads().run(leave, PATIENT_S)
    assert isinstance(failed.value.__cause__, SystemExit)


async def test_it_does_not_wait_for_ever(released: threading.Event) -> None:
    """Work that takes too long is left alone, and other work goes on beside it."""
    pool = threads()
    with pytest.raises(TookTooLong):
        await pool.run(released.wait, 0.05)
    assert await pool.run(lambda: "beside", PATIENT_S) == "beside"


async def test_the_stuck_are_bounded(released: threading.Event) -> None:
    """When as many as allowed are stuck nothing is begun; when one comes back it goes on."""
    pool, done = threads(), threading.Semaphore(0)

    def stick() -> None:
        released.wait()
        done.release()

    for _ in range(2):
        with pytest.raises(TookTooLong):
            await pool.run(stick, 0.05)
    with pytest.raises(TooManyStuck):
        await pool.run(lambda: None, PATIENT_S)
    released.set()
    await asyncio.to_thread(lambda: [done.acquire() for _ in range(2)])
    while True:
        try:
            assert await pool.run(lambda: "again", PATIENT_S) == "again"
            break
        except TooManyStuck:
            await asyncio.sleep(0)


async def test_a_thread_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as an overload while it lasts, and takes no place of those that start later."""
    pool = threads()

    def refuse(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            with pytest.raises(TooManyStuck):
                await pool.run(lambda: None, PATIENT_S)
    assert await pool.run(lambda: "started", PATIENT_S) == "started"


async def test_a_cancelled_wait_loses_the_result_only(released: threading.Event) -> None:
    """Cancelling ends the wait at once; the work ends by itself, and its failure disturbs nobody."""
    pool, has_begun = threads(), threading.Event()

    def fail_later() -> None:
        has_begun.set()
        released.wait()
        raise ValueError

    waiting = asyncio.ensure_future(pool.run(fail_later, PATIENT_S))
    await asyncio.to_thread(has_begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await pool.run(lambda: 1, PATIENT_S) == 1


def test_a_thread_may_outlive_its_loop() -> None:
    """Work that is done when the loop is closed ends quietly."""
    release, ended = threading.Event(), threading.Event()
    pool = threads()

    def work() -> None:
        release.wait()
        ended.set()

    async def leave() -> None:
        with pytest.raises(TookTooLong):
            await pool.run(work, 0.01)

    asyncio.run(leave())
    release.set()
    assert ended.wait(PATIENT_S)


_STUCK = """
import asyncio, threading
from actors.engines.impatience import ImpatientThreads, TookTooLong

try:
    asyncio.run(ImpatientThreads("stuck", 1).run(threading.Event().wait, 0.05))
except TookTooLong:
    print("left alone")
"""


def test_what_is_stuck_does_not_hold_up_the_exit() -> None:
    """A process ends although a piece of work never does."""
    ended = subprocess.run(
        [sys.executable, "-c", _STUCK], capture_output=True, text=True, timeout=15, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "left alone\n"), ended.stderr
