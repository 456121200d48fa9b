"""A loop that stands still: said while it lasts, with the place, once, and without a word of content."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from service.telemetry.loop_lag import INTERVAL_S
from service.telemetry.recorder import LATE_S
from service.telemetry.stall_watch import LOOK_S, MOST_FRAMES, STANDS_S, StallWatch
from tests.doubles.threads import join_threads
from tests.service.telemetry.readings import samples_of

if TYPE_CHECKING:
    from tests.service.telemetry.conftest import NewRecorder
    from tests.service.telemetry.readings import Lines

PATIENCE_S = 30.0
SECRET = "the patient's name is Jane Doe"


class Watched:
    """A watch whose clock is set by hand, of a thread that waits in `somewhere`."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said: list[tuple[float, str]] = []
        self.word = threading.Event()
        self.thread = threading.Thread(target=somewhere, args=(SECRET, self.word), daemon=True)
        self.thread.start()
        self.watch = StallWatch(self.thread.ident or 0, self._on_stall, lambda: self.now_s)

    def _on_stall(self, seconds: float, where: str) -> None:
        self.said.append((seconds, where))

    def look_for(self, seconds: float) -> None:
        """As often as the thread would in that time."""
        ends_s = self.now_s + seconds
        while self.now_s < ends_s:
            self.now_s += LOOK_S
            self.watch.look()


def somewhere(secret: str, word: threading.Event, depth: int = 0) -> None:
    if depth < 2 * MOST_FRAMES:
        somewhere(secret, word, depth + 1)
    else:
        word.wait(PATIENCE_S)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_loop_on_time_is_not_spoken_of(watched: Watched) -> None:
    """Nor is one that is a little late, however often."""
    for _ in range(10):
        watched.watch.expect(INTERVAL_S)
        watched.look_for(INTERVAL_S + STANDS_S)
    watched.word.set()
    assert watched.said == []


def test_a_stall_is_said_once_and_the_next_one_again(watched: Watched) -> None:
    """For as long as it lasts; a heartbeat ends it."""
    watched.watch.expect(INTERVAL_S)
    watched.look_for(INTERVAL_S + STANDS_S + LOOK_S)
    assert len(watched.said) == 1
    assert watched.said[0][0] == pytest.approx(STANDS_S, abs=2 * LOOK_S)
    watched.look_for(600.0)
    assert len(watched.said) == 1
    watched.watch.expect(INTERVAL_S)
    watched.look_for(60.0)
    watched.word.set()
    assert len(watched.said) == 2


def test_before_the_first_heartbeat_nothing_is_expected(watched: Watched) -> None:
    """The loop may start whenever it likes."""
    watched.look_for(60.0)
    watched.word.set()
    assert watched.said == []


def test_a_process_that_was_stopped_has_no_stall(watched: Watched) -> None:
    """SIGSTOP and SIGCONT: the watch was away as long as the loop was."""
    watched.watch.expect(INTERVAL_S)
    watched.now_s += 600.0
    watched.watch.look()
    watched.watch.expect(INTERVAL_S)
    watched.look_for(INTERVAL_S)
    watched.word.set()
    assert watched.said == []


def test_the_places_are_bounded_and_without_values(watched: Watched) -> None:
    """File, line and function of the innermost frames; no argument, whatever it is."""
    while True:
        watched.watch.expect(INTERVAL_S)
        watched.look_for(60.0)
        where = watched.said[-1][1]
        if "somewhere" in where.split(" < ")[-1]:
            break
    watched.word.set()
    places = where.split(" < ")
    assert len(places) == MOST_FRAMES
    assert places[0].startswith("threading.py:")
    assert places[-1].startswith("test_stall_watch.py:")
    assert "Jane" not in where


@pytest.mark.parametrize("uses_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_a_blocked_loop_is_named_while_it_is_blocked(
    new_recorder: NewRecorder, lines: Lines, uses_uvloop: bool
) -> None:
    """By the function that blocks it; afterwards the lag is in the gauge, the histogram and a warning."""
    recorder = new_recorder()

    def a_driver_that_blocks(_secret: str) -> None:
        ends = threading.Event()
        for _ in range(round(PATIENCE_S / LOOK_S)):
            if lines.named("loop.stands_still"):
                return
            ends.wait(LOOK_S)

    async def serve() -> None:
        lag = asyncio.get_running_loop().create_task(recorder.loop_lag.run())
        await asyncio.sleep(0)
        a_driver_that_blocks(SECRET)
        while not lines.named("loop.stalled"):  # noqa: ASYNC110 - the log has no event
            await asyncio.sleep(0.01)
        lag.cancel()

    if uses_uvloop:
        import uvloop

        uvloop.run(serve())
    else:
        asyncio.run(serve())
    join_threads("stall-watch")
    (still,) = lines.named("loop.stands_still")
    assert still["level"] == "WARNING"
    assert still["seconds"] > STANDS_S
    assert "a_driver_that_blocks" in still["where"]
    assert "Jane" not in lines.text
    (stalled,) = lines.named("loop.stalled")
    assert stalled["level"] == "WARNING"
    assert stalled["seconds"] >= still["seconds"] - 0.01
    counted = samples_of(recorder.registry)
    assert counted["loop_lag_seconds_sum"] >= LATE_S
    assert counted["loop_lag_last_seconds"] >= LATE_S


def test_lateness_is_said_once_a_minute(new_recorder: NewRecorder, lines: Lines) -> None:
    """From a quarter of a second on; the histogram has them all."""
    recorder = new_recorder()
    for late_s in (0.0, LATE_S / 2, LATE_S, 0.5, 0.0):
        recorder.loop_lag._observe(late_s)
    assert [line["seconds"] for line in lines.named("loop.stalled")] == [LATE_S]
    counted = samples_of(recorder.registry)
    assert counted["loop_lag_seconds_count"] == 5
    assert counted["loop_lag_last_seconds"] == 0.0
