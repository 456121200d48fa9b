"""What a service manager is told of a worker's life, as a table: events in, assignments out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.telemetry import WorkerState
from service.exit_codes import ExitCode
from service.maintenance import Rest
from service.notify.events import (
    DrainProgress,
    Ended,
    Failed,
    LifeEvent,
    Listed,
    Planned,
    Preparing,
    Resting,
    StateChanged,
    StopAsked,
    WaitingForScrape,
)
from service.notify.stages import LONGEST, NEXT, ROWS, Life, MoreTime, Stage, plain

LOADING, SERVING, DRAINING, DRAINED, STOPPING, FAILED = (
    StateChanged(state) for state in WorkerState if state is not WorkerState.STARTING
)
PLANNED = Planned("smollm2-135m", "torch", 140.0)
FORCED = "forced: asked twice, or the engine is dead"
UP = (PLANNED, LOADING, SERVING, Listed())
ASKED, ASKED_TWICE = StopAsked(1, 1000.0), StopAsked(2, 1000.0)
ASLEEP, WAKING, AWAKE = Resting("asleep", False), Resting("waking", False), Resting("awake", True)


def live(*events: LifeEvent) -> tuple[Life, list[dict[str, str]]]:
    """A life, and what was told of it."""
    life = Life()
    told = [life.hear(event) for event in events]
    return life, told


def last_status(*events: LifeEvent) -> str:
    life, _ = live(*events)
    return life.status


def test_a_start_is_told_step_by_step_and_ready_is_the_last_of_it() -> None:
    """READY comes with discovery's word, not with that of the graph."""
    life, told = live(
        Preparing("the model's files are looked for"),
        PLANNED,
        LOADING,
        Preparing("weights, 40%"),
        SERVING,
        Listed(),
    )
    assert told == [
        {"STATUS": "starting: the model's files are looked for"},
        {},
        {"STATUS": "loading smollm2-135m with torch"},
        {"STATUS": "loading smollm2-135m with torch: weights, 40%"},
        {"STATUS": "loaded, not in discovery yet"},
        {"STATUS": "serving smollm2-135m with torch", "READY": "1"},
    ]
    assert life.stage is Stage.SERVING


def test_a_signal_says_stopping_once_and_the_drain_is_told_to_its_end() -> None:
    """What an operator sees between `systemctl stop` and the end."""
    _, told = live(*UP, ASKED, DRAINING, DrainProgress(7, 114.4), DrainProgress(1, 3.6), DRAINED, STOPPING)
    assert told[len(UP) :] == [
        {"STATUS": "stopping: out of discovery, requests on their way are still served", "STOPPING": "1"},
        {},
        {"STATUS": "stopping: draining 7 requests, for at most 114 s more"},
        {"STATUS": "stopping: draining 1 request, for at most 4 s more"},
        {"STATUS": "stopping: drained, the last answers are being read"},
        {"STATUS": "stopping: the engine is being stopped"},
    ]


def test_what_a_worker_waits_for_when_all_is_over_is_told() -> None:
    """A scrape that sees what it lost; a drain by hand waits for none."""
    waiting = WaitingForScrape(2, 9.6)
    assert last_status(*UP, ASKED, DRAINING, DRAINED, STOPPING, waiting) == (
        "stopping: 2 requests lost, until that is scraped, for at most 10 s more"
    )
    assert last_status(*UP, DRAINING, DRAINED, waiting) == "drained"


def test_a_second_signal_is_told_and_stopping_is_not_said_again() -> None:
    """The wait is over."""
    _, told = live(*UP, ASKED, ASKED_TWICE)
    assert told[-1] == {"STATUS": "stopping: asked twice, requests that are live are ended"}


def test_a_drain_by_hand_is_no_way_out() -> None:
    """No STOPPING, no time asked for; `resume` serves again, and READY is not said twice."""
    life, told = live(*UP, DRAINING, DrainProgress(2, 30.0), DRAINED, DrainProgress(0, 29.0), SERVING)
    assert told[len(UP) :] == [
        {"STATUS": "draining"},
        {"STATUS": "draining: 2 requests, for at most 30 s more"},
        {"STATUS": "drained"},
        {},
        {"STATUS": "serving smollm2-135m with torch"},
    ]
    for events in ((*UP, DRAINING), (*UP, DRAINING, DRAINED), (*UP, DRAINING, DRAINED, ASLEEP)):
        assert live(*events)[0].more_time is MoreTime.NONE
    assert life.stage is Stage.SERVING


def test_sleep_is_told_and_wake_ends_it() -> None:
    """A worker that was drained by hand before wakes up drained."""
    asleep = (*UP, Resting("pausing", False), DRAINING, DRAINED, ASLEEP)
    assert last_status(*asleep[:5]) == "serving smollm2-135m with torch"
    assert last_status(*asleep) == "sleeping: asleep"
    assert last_status(*asleep, Resting("half_asleep", False)) == "sleeping: half asleep"
    assert last_status(*asleep, WAKING) == "sleeping: waking"
    assert last_status(*asleep, WAKING, AWAKE) == "drained"
    assert last_status(*asleep, WAKING, AWAKE, SERVING) == "serving smollm2-135m with torch"


@pytest.mark.parametrize("rest", Rest)
def test_every_state_of_the_memory_has_its_words(rest: Rest) -> None:
    """Nothing of Python's names is left in them."""
    status = last_status(*UP, DRAINING, DRAINED, Resting(rest.value, is_awake=rest is Rest.AWAKE))
    assert "_" not in status
    assert status == ("drained" if rest is Rest.AWAKE else f"sleeping: {rest.value.replace('_', ' ')}")


def test_a_death_says_stopping_with_the_reason_and_keeps_it() -> None:
    """The signal that the worker sends itself does not hide why."""
    _, told = live(
        *UP, FAILED, Failed("EngineDead: no step for 30 s"), ASKED, STOPPING, Ended(ExitCode.FORCED)
    )
    assert told[len(UP) :] == [
        {"STATUS": "failed", "STOPPING": "1"},
        {"STATUS": "failed: EngineDead: no step for 30 s"},
        {},
        {},
        {"STATUS": f"failed (code 70, {FORCED}): EngineDead: no step for 30 s"},
    ]


def test_an_engine_that_dies_while_stopping_is_told() -> None:
    """It is why the code is not 0."""
    assert last_status(*UP, ASKED, FAILED, Failed("EngineDead")) == "failed: EngineDead"


@pytest.mark.parametrize("before", [(), (PLANNED,), (PLANNED, LOADING), (PLANNED, LOADING, SERVING)])
def test_a_start_that_fails_never_is_ready(before: tuple[LifeEvent, ...]) -> None:
    """Discovery's word comes too late, whatever it says."""
    _, told = live(
        *before, Failed("model 'nowhere': not there"), Ended(ExitCode.CONFIGURATION), Listed(), SERVING
    )
    assert not any("READY" in each for each in told)
    assert told[-3:] == [
        {"STATUS": "failed (code 2, the configuration is refused): model 'nowhere': not there"},
        {},
        {},
    ]


def test_a_stop_before_discovery_has_spoken_is_not_followed_by_ready() -> None:
    """The framework takes the worker out: it is listed no more."""
    _, told = live(PLANNED, LOADING, SERVING, ASKED, Listed(), DRAINING, DRAINED, STOPPING)
    assert not any("READY" in each for each in told)


def test_a_worker_that_was_drained_before_it_was_listed_is_ready_when_it_is() -> None:
    """`resume` alone does not list it."""
    life, told = live(PLANNED, LOADING, SERVING, DRAINING, DRAINED, SERVING)
    assert life.stage is Stage.REGISTERING
    assert not any("READY" in each for each in told)
    assert "READY" in life.hear(Listed())


@pytest.mark.parametrize(
    "by_hand", [(DRAINING,), (DRAINING, DRAINED), (DRAINING, DRAINED, ASLEEP)], ids=["1", "2", "3"]
)
def test_a_listing_that_comes_late_says_nothing_of_a_worker_that_was_drained(
    by_hand: tuple[LifeEvent, ...],
) -> None:
    """Frontends may still see it for a moment, and it serves nobody; `resume` says that it is ready."""
    life, _ = live(PLANNED, LOADING, SERVING, *by_hand)
    stage = life.stage
    assert life.hear(Listed()) == {}
    assert life.stage is stage
    life.hear(DRAINED)
    assert life.hear(SERVING) == {"STATUS": "serving smollm2-135m with torch", "READY": "1"}


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_explained(code: ExitCode) -> None:
    """Its number and what it means, with or without a reason."""
    assert last_status(*UP, Ended(code)).startswith(f"ended (code {code.value}, ")
    assert last_status(*UP, Failed("why"), Ended(code)).startswith(f"failed (code {code.value}, ")
    assert last_status(*UP, Failed("why"), Ended(None)) == "failed: why"


def test_when_it_is_over_counts_from_the_first_signal() -> None:
    """Not from the second, and not without a budget."""
    life, _ = live(PLANNED, LOADING, StopAsked(1, 1000.0), StopAsked(2, 1050.0))
    assert life.exit_by_s == 1140.0
    assert live(PLANNED, LOADING)[0].exit_by_s is None
    assert live(StopAsked(1, 1000.0))[0].exit_by_s is None


def test_every_stage_has_a_row_and_ways_on() -> None:
    """The table is complete; who is on the way out does not come back, and time is asked for only there."""
    assert set(ROWS) == set(NEXT) == set(Stage)
    ways_out = {Stage.STOPPING, Stage.FAILED, Stage.ENDED}
    for stage in Stage:
        assert NEXT[stage] <= ways_out if stage in ways_out else ways_out <= NEXT[stage]
    loading = {Stage.STARTING, Stage.LOADING, Stage.REGISTERING}
    assert {stage for stage in Stage if ROWS[stage].more_time is MoreTime.WHILE_IT_MOVES} == loading


EVENTS: st.SearchStrategy[LifeEvent] = st.one_of(
    st.builds(Preparing, st.text()),
    st.builds(Planned, st.text(), st.text(), st.floats(0, 1e4)),
    st.builds(StateChanged, st.sampled_from(WorkerState)),
    st.just(Listed()),
    st.builds(DrainProgress, st.integers(0, 1 << 40), st.floats(0, 1e6)),
    st.builds(WaitingForScrape, st.integers(1, 1 << 40), st.floats(0, 10)),
    st.builds(Resting, st.sampled_from([rest.value for rest in Rest]), st.booleans()),
    st.builds(StopAsked, st.integers(1, 5), st.floats(0, 1e6)),
    st.builds(Failed, st.text()),
    st.builds(Ended, st.sampled_from([*ExitCode, None])),
)


@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_the_manager_hears_a_life_it_can_understand(events: list[LifeEvent]) -> None:
    """READY and STOPPING once at most, never READY after STOPPING, and one plain line of bounded length."""
    life, said = Life(), list[str]()
    for event in events:
        news = life.hear(event)
        said += [name for name in news if name != "STATUS"]
        assert all(value.isprintable() and 0 < len(value) <= LONGEST for value in news.values())
    assert said in ([], ["READY"], ["STOPPING"], ["READY", "STOPPING"])


@given(st.text())
def test_a_status_line_cannot_say_anything_else(text: str) -> None:
    """What begins a new line would be an assignment of its own."""
    line = plain(text)
    assert len(line) <= LONGEST
    assert line.splitlines() in ([], [line])
    line.encode("utf-8")
