"""What gets out to the manager, when it takes messages and when it does not; and the time it is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocols.telemetry import WorkerState
from service.notify.correspondence import EVERY_S, START_MORE_S, STOP_MORE_S, Correspondence
from service.notify.datagrams import Datagrams
from service.notify.events import (
    DrainProgress,
    Failed,
    Listed,
    LoopTurned,
    Planned,
    Preparing,
    StateChanged,
    StopAsked,
)
from tests.service.notify_manager import assignments

HARD_EXIT_S = 140.0
PLANNED = Planned("m", "torch", HARD_EXIT_S)
LOADING, SERVING = StateChanged(WorkerState.LOADING), StateChanged(WorkerState.SERVING)
DRAINING = StateChanged(WorkerState.DRAINING)
EXTEND = "EXTEND_TIMEOUT_USEC"


class Post(Datagrams):
    """Takes messages, unless it is closed."""

    def __init__(self) -> None:
        super().__init__(None)
        self.is_open = True
        self.taken: list[dict[str, str]] = []

    def send(self, message: bytes) -> bool:
        if self.is_open:
            self.taken.append(assignments(message))
        else:
            self.last_error = "BlockingIOError"
        return self.is_open


class Desk:
    """A correspondence on a clock of its own. is_moving: whether the start gets on."""

    def __init__(self) -> None:
        self.post, self.now_s, self.is_moving = Post(), 1000.0, True
        self.letters = Correspondence(self.post, lambda _within_s: self.is_moving)
        self.letters.send()

    def hear(self, *events: object) -> Desk:
        for event in events:
            self.letters.hear(event, self.now_s)  # type: ignore[arg-type] # any event
        return self

    def tick(self) -> list[int]:
        """Five seconds later; the microseconds that were asked for."""
        self.now_s += EVERY_S
        before = len(self.post.taken)
        self.letters.ask_for_time(self.now_s, EVERY_S)
        return [int(told[EXTEND]) for told in self.post.taken[before:]]


def serving() -> Desk:
    return Desk().hear(PLANNED, LOADING, SERVING, Listed())


def test_the_first_word_is_said_before_anything_happens() -> None:
    """An operator sees at once that there is somebody."""
    assert Desk().post.taken == [{"STATUS": "starting"}]


def test_what_was_not_taken_is_said_later_and_the_newest_status_only() -> None:
    """READY is never lost; of two status lines the older one is of no use any more."""
    desk = Desk()
    desk.post.is_open = False
    desk.hear(PLANNED, LOADING, SERVING, Listed())
    assert len(desk.post.taken) == 1
    desk.post.is_open = True
    desk.letters.send()
    assert desk.post.taken[1:] == [{"STATUS": "serving m with torch", "READY": "1"}]
    assert desk.letters.is_up_to_date
    desk.letters.send()
    assert len(desk.post.taken) == 2


def test_ready_that_was_not_taken_is_not_said_of_a_worker_that_stops() -> None:
    """It would never have been true when the manager heard of it."""
    desk = Desk()
    desk.post.is_open = False
    desk.hear(PLANNED, LOADING, SERVING, Listed(), StopAsked(1, desk.now_s))
    desk.post.is_open = True
    desk.letters.send()
    assert set(desk.post.taken[-1]) == {"STATUS", "STOPPING"}


def test_a_sign_of_life_that_was_not_taken_is_not_given_later() -> None:
    """By then it would say nothing about the loop."""
    desk = serving().hear(LoopTurned())
    assert desk.post.taken[-1] == {"WATCHDOG": "1"}
    desk.post.is_open = False
    desk.hear(LoopTurned())
    assert desk.letters.is_up_to_date
    desk.post.is_open = True
    desk.letters.send()
    assert [told for told in desk.post.taken if "WATCHDOG" in told] == [{"WATCHDOG": "1"}]


def test_a_manager_that_takes_nothing_is_one_line_of_the_log(caplog) -> None:
    """However often it is tried; the line names the error."""
    desk = Desk()
    desk.post.is_open = False
    desk.hear(PLANNED, LOADING, SERVING)
    for _ in range(5):
        desk.letters.send()
    assert [record.getMessage() for record in caplog.records] == ["notify.not_taken error=BlockingIOError"]


def test_a_start_that_moves_gets_more_time_and_one_that_is_stuck_gets_none() -> None:
    """So the manager's time-out is for what is stuck, however long a load takes."""
    desk = Desk().hear(PLANNED, LOADING)
    assert desk.tick() == [int(START_MORE_S * 1e6)]
    assert desk.tick() == [int(START_MORE_S * 1e6)]
    desk.is_moving = False
    assert desk.tick() == []
    assert desk.tick() == []


def test_a_start_gets_time_before_anybody_can_see_whether_it_moves() -> None:
    """A manager may have less patience than our first look needs; it is a start's only credit."""
    desk = Desk()
    desk.is_moving = False
    assert desk.tick() == [int(START_MORE_S * 1e6)]
    assert desk.tick() == []


def test_a_stage_that_was_told_is_a_move_once() -> None:
    """An engine whose work is not seen (in another container, say) still gets on."""
    desk = Desk().hear(PLANNED, LOADING)
    desk.is_moving = False
    desk.tick()
    desk.hear(Preparing("weights, 10%"))
    assert desk.tick() == [int(START_MORE_S * 1e6)]
    assert desk.tick() == []
    desk.hear(Preparing("weights, 10%"))
    assert desk.tick() == []


def test_a_worker_that_serves_asks_for_no_time() -> None:
    """Else it would put off an operator's RuntimeMaxSec; the same when it is drained by hand."""
    desk = serving()
    assert desk.tick() == []
    desk.hear(DRAINING, DrainProgress(3, 100.0))
    assert desk.tick() == []


def test_a_worker_that_stops_gets_time_at_once_and_never_beyond_its_hard_exit() -> None:
    """Whatever is asked for ends with the time in which the process has ended in any case."""
    desk = serving()
    first_s = desk.now_s
    desk.now_s += 0.01
    desk.hear(StopAsked(1, first_s))
    assert int(desk.post.taken[-1][EXTEND]) == STOP_MORE_S * 1e6
    ends_s = []
    while (asked := desk.tick()) != []:
        ends_s.append(desk.now_s + asked[0] / 1e6)
    assert max(ends_s) <= first_s + HARD_EXIT_S
    assert ends_s[-1] == first_s + HARD_EXIT_S
    assert desk.now_s >= first_s + HARD_EXIT_S


def test_a_second_signal_does_not_buy_time() -> None:
    """The budget counts from the first."""
    desk = serving()
    first_s = desk.now_s
    desk.hear(StopAsked(1, first_s))
    desk.now_s = first_s + HARD_EXIT_S - 1
    desk.hear(StopAsked(2, first_s))
    desk.letters.ask_for_time(desk.now_s)
    assert int(desk.post.taken[-1][EXTEND]) <= 1e6


def test_a_worker_that_dies_gets_time_from_its_own_signal_on() -> None:
    """Before that nobody knows when it has ended."""
    desk = serving().hear(Failed("dead"))
    assert desk.tick() == []
    desk.hear(StopAsked(1, desk.now_s))
    assert desk.tick() == [int(STOP_MORE_S * 1e6)]


@given(
    st.lists(st.sampled_from(["lose", "take", "tick", "turn", "serve", "stop", "drain", "fail"]), max_size=60)
)
def test_whatever_is_lost_ready_and_stopping_are_heard_in_order_and_time_is_bounded(moves: list[str]) -> None:
    """Each is taken once at most; STOPPING is the last of both; no time beyond the hard exit."""
    desk = Desk().hear(PLANNED, LOADING)
    events = {
        "turn": LoopTurned(),
        "serve": Listed(),
        "drain": DrainProgress(2, 9.0),
        "fail": Failed("why"),
        "stop": StopAsked(1, 1000.0),
    }
    desk.hear(SERVING)
    for move in moves:
        if move in ("lose", "take"):
            desk.post.is_open = move == "take"
            desk.letters.send()
        elif move == "tick":
            for usec in desk.tick():
                is_out = desk.letters.life.exit_by_s is not None
                assert not is_out or desk.now_s + usec / 1e6 <= 1000.0 + HARD_EXIT_S
        else:
            desk.hear(events[move])
    desk.post.is_open = True
    desk.letters.send()
    said = [name for told in desk.post.taken for name in told if name in ("READY", "STOPPING")]
    assert said in ([], ["READY"], ["STOPPING"], ["READY", "STOPPING"])
    assert desk.letters.is_up_to_date
