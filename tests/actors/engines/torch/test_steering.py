"""Steering of one sequence: processors and a grammar beside the engine's thread, patience, and blame."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from actors.engines.foreign import side_job
from actors.engines.foreign.processors import Processor
from actors.engines.foreign.steering_failed import SteeringFailed, TooCostly
from actors.engines.torch import side_lane
from actors.engines.torch.lanes import FAIR_S, TURN_S, Lanes
from actors.engines.torch.side_lane import SideLane
from actors.engines.torch.steering import GIVE_UP_S, Steering
from protocols.bounds import Bound
from protocols.spec import ProcessorEntry
from tests.actors.engines.torch.hostile_processors import Looping, Temperature
from tests.doubles.listeners import RecordingTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 10.0
# A turn that nothing reaches unless it hangs: what is decided is decided by the fake clock.
LONG_S = 60.0


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class GrammarDouble:
    """Forbids token 0; each of its calls can be told to do something before."""

    def __init__(self, **before: Callable[[], object]) -> None:
        self._before = before

    def fill_mask(self) -> None:
        self._before.get("fill_mask", int)()

    def apply_mask(self, row: torch.Tensor) -> None:
        self._before.get("apply_mask", int)()
        row[0] = float("-inf")

    def accept(self, token: int) -> bool:
        self._before.get("accept", int)()
        return token == 7


def is_complete(of: Steering, token: int) -> bool:
    """What its grammar says of a token, however long it takes."""
    assert of.follow(token)
    of.wait(time.monotonic() + PATIENCE_S)
    until(lambda: not of.is_running)
    return of.followed()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def listener() -> RecordingTelemetry:
    """What was said about bounds."""
    return RecordingTelemetry()


@pytest.fixture
def lanes(clock: Clock, listener: RecordingTelemetry) -> Iterator[Lanes]:
    made = Lanes(
        masks=SideLane("masks", LONG_S, lambda: None),
        processors=SideLane("processors", LONG_S, lambda: None),
        clock=clock,
        on_bound=listener.bound_reached,
    )
    yield made
    made.close()


def steering(lanes: Lanes, *factories: Any, grammar: Any = None) -> Steering:
    processors = [
        Processor(ProcessorEntry(name=f"p{place}"), factory) for place, factory in enumerate(factories)
    ]
    made = Steering(lanes, processors, grammar)
    made.prepare()
    until(lambda: not made._making.is_running)
    return made


def until(is_true: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < ends_s, "it never came true"
        time.sleep(0)


def token(of: Steering, row: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """One whole token."""
    of.begin(row, tokens)
    of.wait(time.monotonic() + PATIENCE_S)
    until(lambda: not of.is_running)
    return of.finish()


def row() -> torch.Tensor:
    return torch.linspace(-4.0, 4.0, 320)


def raising(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


def test_processors_come_before_the_grammar_and_in_their_order(lanes: Lanes) -> None:
    """On a copy: the row of the model stays as it was. They see prompt and output so far."""
    seen: list[list[int]] = []

    def doubling() -> Any:
        def double(input_ids: list[int], logits: torch.Tensor) -> None:
            seen.append(list(input_ids))
            logits.mul_(2.0)

        return double

    def add_one() -> Any:
        def add(_input_ids: list[int], logits: torch.Tensor) -> None:
            logits.add_(1.0)

        return add

    given = row()
    mine = steering(lanes, doubling, add_one, grammar=GrammarDouble())
    changed = token(mine, given, [1, 2])
    assert not is_complete(mine, 3)
    mine.prefetch()
    token(mine, given, [1, 2, 3])
    expected = row() * 2 + 1
    expected[0] = float("-inf")
    assert torch.equal(changed, expected)
    assert torch.equal(given, row())
    assert seen == [[1, 2], [1, 2, 3]]


def test_a_grammar_alone_needs_no_copy(lanes: Lanes) -> None:
    """The mask is applied to the row that was given, unless that is used for something else meanwhile."""
    given = row()
    mine = steering(lanes, grammar=GrammarDouble())
    assert token(mine, given, [1]) is given
    word = threading.Event()
    late = steering(lanes, grammar=GrammarDouble(fill_mask=word.wait))
    given = row()
    late.begin(given, [1])
    late.wait(time.monotonic())
    late.keep()
    given.fill_(9.0)
    word.set()
    until(lambda: not late.is_running)
    changed = late.finish()
    assert torch.equal(changed[1:], row()[1:])
    assert torch.isneginf(changed[0])
    assert is_complete(mine, 7)


def test_waiting_ends_when_mask_and_processor_hang(lanes: Lanes) -> None:
    """Neither lane's wait sleeps for what happens on the other."""
    word = threading.Event()

    def hanging() -> Any:
        def hang(_input_ids: list[int], _logits: torch.Tensor) -> None:
            word.wait()

        return hang

    mine = steering(lanes, hanging, grammar=GrammarDouble(fill_mask=word.wait))
    mine.begin(row(), [1])
    mine.wait(time.monotonic() + 0.01)
    assert mine.is_running
    word.set()
    until(lambda: not mine.is_running)
    mine.finish()


@pytest.mark.parametrize("where", ["fill_mask", "apply_mask", "accept"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("with a secret"), "the grammar failed (ValueError)"),
        (BaseException("as a panic is"), "the grammar failed (BaseException)"),
        (SteeringFailed("the grammar became too costly"), "the grammar became too costly"),
    ],
)
def test_whatever_a_grammar_raises_is_the_requests_failure(
    lanes: Lanes, where: str, error: BaseException, told: str
) -> None:
    """On a lane or in the engine's thread, also what is no Exception; no text of the library is shown."""
    mine = steering(lanes, grammar=GrammarDouble(**{where: raising(error)}))

    def one_token() -> None:
        token(mine, row(), [1])
        is_complete(mine, 3)

    with pytest.raises(SteeringFailed) as caught:
        one_token()
    assert str(caught.value) == told


@pytest.mark.parametrize("where", ["fill_mask", "accept"])
def test_a_grammar_that_used_up_its_work_is_counted(
    lanes: Lanes, listener: RecordingTelemetry, where: str
) -> None:
    """As that, and once; any other failure is in no bound's count."""
    for error in (TooCostly("the grammar became too costly"), ValueError("x"), SteeringFailed("x")):
        mine = steering(lanes, grammar=GrammarDouble(**{where: raising(error)}))
        with pytest.raises(SteeringFailed):
            one_token_with(mine)
    assert listener.bounds == {Bound.GRAMMAR_WORK: 1}


def one_token_with(of: Steering) -> None:
    token(of, row(), [1])
    is_complete(of, 3)


def test_what_is_late_is_counted_once(lanes: Lanes, listener: RecordingTelemetry) -> None:
    """However often it is looked at: for a row, and again for a token that is noted."""
    word = threading.Event()
    mine = steering(lanes, grammar=GrammarDouble(fill_mask=word.wait, accept=word.wait))
    mine.begin(row(), [1])
    mine.wait(time.monotonic())
    for _ in range(3):
        mine.keep()
        mine.count_late()
    assert listener.bounds == {Bound.STEP_WAIT: 1}
    word.set()
    until(lambda: not mine.is_running)
    mine.finish()
    mine.follow(3)
    mine.count_late()
    mine.count_late()
    assert listener.bounds == {Bound.STEP_WAIT: 2}
    mine.wait(time.monotonic() + PATIENCE_S)
    assert not mine.followed()


def test_a_processor_is_blamed_before_the_grammar(lanes: Lanes) -> None:
    """It came first, and what it did may be why the grammar failed."""

    def broken() -> Any:
        return lambda input_ids, logits: 3

    grammar = GrammarDouble(fill_mask=raising(ValueError("x")))
    with pytest.raises(SteeringFailed, match="logits processor 'p0' returned a value"):
        token(steering(lanes, broken, grammar=grammar), row(), [1])


def hopeless_after(mine: Steering, clock: Clock, *seconds: float) -> list[bool]:
    """Whether it is, each time after the clock has moved on."""
    found: list[bool] = []
    for step_s in seconds:
        clock.now_s += step_s
        found.append(mine.is_hopeless)
    return found


def test_patience_has_an_end(lanes: Lanes, clock: Clock, listener: RecordingTelemetry) -> None:
    """After ten seconds the request is given up, by the processor's name, and an endless loop is ended."""
    mine = steering(lanes, Looping)
    mine.begin(row(), [1])
    mine.wait(time.monotonic())
    assert hopeless_after(mine, clock, 0.0, GIVE_UP_S, 0.01) == [False, False, True]
    assert listener.bounds == {}
    assert mine.give_up() == "logits processor 'p0' did not return within 10 s"
    assert listener.bounds == {Bound.FOREIGN_TIME: 1}
    until(lambda: not mine.is_running)
    quick = steering(lanes, Temperature)
    token(quick, row(), [1])


def test_patience_with_a_grammar_begins_with_each_token(lanes: Lanes, clock: Clock) -> None:
    """One that hangs while it notes a token is given up after ten seconds, too."""
    word = threading.Event()
    mine = steering(lanes, grammar=GrammarDouble(accept=word.wait))
    token(mine, row(), [1])
    clock.now_s += GIVE_UP_S
    mine.follow(3)
    mine.wait(time.monotonic())
    assert hopeless_after(mine, clock, 0.0, GIVE_UP_S, 0.01) == [False, False, True]
    assert mine.give_up() == "the grammar did not return within 10 s"
    word.set()


def test_without_a_grammar_there_is_nothing_to_follow(lanes: Lanes) -> None:
    """A request with processors alone waits for nobody after its token."""
    mine = steering(lanes, Temperature)
    assert not mine.follow(3)
    assert not mine.is_running


@pytest.mark.parametrize("where", ["factory", "call"])
def test_who_leaves_takes_his_code_along(lanes: Lanes, where: str) -> None:
    """An endless loop ends with its request, in a factory as in a call, and its thread is free."""
    begun = threading.Event()

    def loop(*_: object) -> None:
        while True:
            begun.set()

    def factory() -> Any:
        return loop() if where == "factory" else loop

    mine = Steering(lanes, [Processor(ProcessorEntry(name="looping"), factory)], None)
    mine.prepare()
    if where == "call":
        mine.begin(row(), [1])
        mine.wait(time.monotonic())
    assert begun.wait(PATIENCE_S)
    mine.leave()
    mine.leave()
    until(lambda: not mine.is_running and not mine._making.is_running)
    until(lambda: lanes.processors.threads_alone == 0)


def test_who_leaves_before_he_has_a_thread_never_begins(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His name has no thread to spare; when it has one again, his factory is not called."""
    monkeypatch.setattr(side_lane, "MOST_ALONE", 1)
    word, calls = threading.Event(), list[int]()

    def load() -> Any:
        calls.append(1)
        word.wait()
        return lambda input_ids, logits: None

    many = [Steering(lanes, [Processor(ProcessorEntry(name="loading"), load)], None) for _ in range(3)]
    for one in many:
        one.prepare()
    many[1].leave()
    word.set()
    until(lambda: not any(one._making.is_running for one in many))
    assert len(calls) == 2


def test_one_name_cannot_keep_another_from_being_made(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """More instances load than a name has threads: its others wait, and another name has its first token."""
    monkeypatch.setattr(side_lane, "MOST_ALONE", 3)
    word = threading.Event()

    def load() -> Any:
        word.wait()
        return lambda input_ids, logits: None

    many = [Steering(lanes, [Processor(ProcessorEntry(name="loading"), load)], None) for _ in range(8)]
    for one in many:
        one.prepare()
    assert lanes.processors.threads_alone == 3
    assert torch.allclose(token(steering(lanes, Temperature), row(), [1]), row() / 0.7)
    assert all(one._making.is_running for one in many)
    word.set()
    until(lambda: not any(one._making.is_running for one in many))


def test_every_token_has_ten_seconds_of_its_own(lanes: Lanes, clock: Clock) -> None:
    """A long answer is no late one."""
    mine = steering(lanes, Temperature)
    for length in range(1, 5):
        clock.now_s += GIVE_UP_S
        mine.begin(row(), list(range(length)))
        assert not mine.is_hopeless
        mine.wait(time.monotonic() + PATIENCE_S)
        mine.finish()


def test_making_an_instance_holds_up_nobody(lanes: Lanes) -> None:
    """It has a thread of its own before the first token; the first call waits for it, apart from others."""
    word, calls = threading.Event(), list[int]()

    def load() -> Any:
        word.wait()
        return lambda input_ids, logits: calls.append(len(input_ids))

    loading = Steering(lanes, [Processor(ProcessorEntry(name="loading"), load)], None)
    loading.prepare()
    loading.begin(row(), [1])
    loading.wait(time.monotonic() + PATIENCE_S)
    assert loading.is_running
    token(steering(lanes, Temperature), row(), [1])
    assert loading.is_running
    word.set()
    until(lambda: not loading.is_running)
    loading.finish()
    assert not loading._changing.is_slow
    token(loading, row(), [1, 2])
    assert calls == [1, 2]


def spending(seconds: list[float], clock: Clock) -> Any:
    """A processor for which time passes, the next number of seconds at every call."""

    def factory() -> Any:
        def spend(_input_ids: list[int], _logits: torch.Tensor) -> None:
            clock.now_s += seconds.pop(0)

        return spend

    return factory


@pytest.mark.parametrize(
    ("seconds", "is_slow"),
    [
        ([0.9 * FAIR_S] * 200, False),
        ([FAIR_S + 0.9 * TURN_S, *[0.0] * 40] * 5, False),
        ([FAIR_S + 0.6 * TURN_S] * 2, True),
        ([0.7 * TURN_S] * 3, True),
        ([FAIR_S + TURN_S / 10] * 12, True),
    ],
    ids=["fair", "seldom", "twice", "always", "a bit"],
)
def test_who_is_too_slow_for_company_is_told_apart(
    lanes: Lanes, clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: list[float], is_slow: bool
) -> None:
    """What a request takes beyond its fair share adds up, and is forgiven with time; a turn is the limit."""
    monkeypatch.setattr(side_job, "time", SimpleNamespace(monotonic=clock))
    left = list(seconds)
    mine = steering(lanes, spending(left, clock))
    for length in range(len(seconds)):
        token(mine, row(), list(range(length)))
    assert mine._changing.is_slow is is_slow
    assert not left


def test_who_was_told_apart_is_never_waited_for_again(lanes: Lanes) -> None:
    """He gets a thread for each token, and is late from the beginning."""
    mine = steering(lanes, Temperature)
    mine._changing.is_slow = True
    for length in range(3):
        mine.begin(row(), list(range(length)))
        job = mine._changing.job
        assert job is not None
        assert job.is_late
        until(lambda: not mine.is_running)
        assert torch.allclose(mine.finish(), row() / 0.7)
