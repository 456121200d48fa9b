"""Promises of the books: started = live + all outcomes, each outcome written once, nothing kept after it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.outbox import Terminal
from protocols.errors import EngineShutdown, GenerationFailed, InternalError, Overloaded
from protocols.steps import Delta, FinishReason
from protocols.telemetry import Outcome, Phase
from tests.actors.office import Office
from tests.doubles.callers import FakeCaller, Reader
from tests.doubles.scheduling import run_seeded

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from actors.ticket import Ticket

DONE = Terminal(finish_reason=FinishReason.LENGTH)


@pytest.fixture
def office() -> Office:
    return Office()


class TestEnding:
    def test_the_first_outcome_stays(self, office: Office) -> None:
        """Ending twice is allowed and changes nothing the second time."""
        ticket = office.open()
        assert office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert not office.ledger.end(ticket, Outcome.FAILED, Terminal(error=EngineShutdown("x")))
        assert ticket.outcome is Outcome.COMPLETED
        assert ticket.outbox.terminal is DONE
        assert office.listener.outcomes == {Outcome.COMPLETED: 1}

    def test_an_ended_request_is_found_no_more(self, office: Office) -> None:
        """Messages about it are late from the moment it ends."""
        ticket = office.open()
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert office.ledger.find(ticket.engine_id) is None
        assert list(office.ledger.of_context(ticket.caller.context_id)) == []
        assert office.ledger.is_empty

    def test_its_place_and_its_reservation_are_free_at_once(self, office: Office) -> None:
        """What a request was given at the door is given back by its end."""
        ticket = office.open()
        office.ledger.admit(ticket, 256)
        assert (office.ledger.admitted, office.ledger.reserved_tokens) == (1, 256)
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert (office.ledger.admitted, office.ledger.reserved_tokens) == (0, 0)

    def test_an_unread_answer_keeps_its_reservation(self, office: Office) -> None:
        """Its place is free, its memory is not, until its last token is taken."""
        ticket = office.open(phase=Phase.DECODE)
        office.ledger.admit(ticket, 256)
        ticket.outbox.put(Delta(ticket.engine_id, [1, 2, 3]), 0.0)
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert (office.ledger.admitted, office.ledger.reserved_tokens) == (0, 256)
        run_seeded(Reader(ticket.outbox).read)
        assert office.ledger.reserved_tokens == 0

    def test_a_reader_that_is_gone_gives_its_memory_back(self, office: Office) -> None:
        """Once, however often it is said."""
        ticket = office.open(phase=Phase.DECODE)
        office.ledger.admit(ticket, 256)
        ticket.outbox.put(Delta(ticket.engine_id, [1]), 0.0)
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        office.ledger.release(ticket)
        office.ledger.release(ticket)
        run_seeded(Reader(ticket.outbox).read)
        assert office.ledger.reserved_tokens == 0

    def test_a_request_that_was_not_admitted_gives_nothing_back(self, office: Office) -> None:
        """A refusal at the door cannot free somebody else's place."""
        office.ledger.admit(office.open(), 256)
        office.ledger.refuse(office.open(), Overloaded("max_live", "1"))
        assert (office.ledger.admitted, office.ledger.reserved_tokens) == (1, 256)

    @pytest.mark.parametrize("phase", [Phase.RESOLVING, Phase.WAITING, Phase.PREFILL, Phase.DECODE])
    def test_a_request_can_end_in_every_phase(self, office: Office, phase: Phase) -> None:
        """The story says how far it came."""
        ticket = office.open(phase=phase)
        office.ledger.end(ticket, Outcome.INTERRUPTED, Terminal(error=EngineShutdown("x")))
        assert ticket.phase is Phase.FINISHED
        assert office.listener.stories[ticket.engine_id].phase is phase

    def test_watchers_hear_of_every_opening_and_every_end(self, office: Office) -> None:
        """Drain and sweeper wake up by it; the books are already right when they are called."""
        seen: list[int] = []
        office.ledger.watch(lambda: seen.append(office.ledger.live_count))
        ticket = office.open()
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert seen == [1, 0]


class TestStory:
    def test_it_counts_what_was_taken_and_what_still_lies_there(self, office: Office) -> None:
        """Tokens owed at the end will be delivered, so they count."""
        ticket = office.open(phase=Phase.DECODE)
        ticket.outbox.put(Delta(ticket.engine_id, [1, 2, 3]), 0.0)
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert office.listener.stories[ticket.engine_id].completion_tokens == 3

    def test_dropped_tokens_are_in_no_story(self, office: Office) -> None:
        """A reader that has left is not charged for what it never took."""
        ticket = office.open(phase=Phase.DECODE)
        ticket.outbox.put(Delta(ticket.engine_id, [1, 2, 3]), 0.0)
        office.ledger.end(ticket, Outcome.CANCELLED, DONE, drop_waiting=True)
        assert office.listener.stories[ticket.engine_id].completion_tokens == 0

    def test_it_tells_what_was_wrong_with_the_engine(self, office: Office) -> None:
        """Texts of an engine's fault have no content in them, and an operator needs them."""
        ticket = office.open(phase=Phase.DECODE)
        office.ledger.end(ticket, Outcome.FAILED, Terminal(error=GenerationFailed("it broke")))
        assert office.listener.stories[ticket.engine_id].error_text == "it broke"

    def test_it_names_the_kind_of_a_refusal_and_never_its_text(self, office: Office) -> None:
        """Texts of a refusal may quote the caller; stories go to logs."""
        ticket = office.open()
        office.ledger.refuse(ticket, Overloaded("max_live", "secret"))
        story = office.listener.stories[ticket.engine_id]
        assert story.error_kind == "Overloaded"
        assert "secret" not in repr(story)

    def test_times_are_those_of_the_clock(self, office: Office) -> None:
        """Arrival and end are read where they happen."""
        ticket = office.open()
        office.now_s = 107.5
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        story = office.listener.stories[ticket.engine_id]
        assert (story.arrived_s, story.ended_s) == (100.0, 107.5)


class TestNamesakes:
    def test_two_requests_may_share_a_context_id(self, office: Office) -> None:
        """A migrated request can meet its own past: both are kept, apart."""
        one, other = office.open(FakeCaller("same")), office.open(FakeCaller("same"))
        assert one.engine_id != other.engine_id
        assert list(office.ledger.of_context("same")) == [one, other]

    def test_ending_one_leaves_the_other(self, office: Office) -> None:
        """The end of one namesake is not the end of the name."""
        one, other = office.open(FakeCaller("same")), office.open(FakeCaller("same"))
        office.ledger.end(one, Outcome.COMPLETED, DONE)
        assert list(office.ledger.of_context("same")) == [other]

    def test_a_snapshot_survives_endings(self, office: Office) -> None:
        """Who walks over the live requests may end them on the way."""
        tickets = [office.open(FakeCaller("same")) for _ in range(3)]
        for ticket in office.ledger.of_context("same"):
            office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert office.ledger.is_empty
        tickets = [office.open() for _ in range(3)]
        assert list(office.ledger.live()) == tickets
        for ticket in office.ledger.live():
            office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        assert office.ledger.is_empty


class TestPhases:
    def test_there_is_no_way_back(self, office: Office) -> None:
        """A step the table does not have is a bug, and says which."""
        ticket = office.open(phase=Phase.DECODE)
        with pytest.raises(InternalError, match="decode -> waiting"):
            ticket.advance(Phase.WAITING)

    def test_nothing_comes_after_the_end(self, office: Office) -> None:
        """A finished request moves nowhere."""
        ticket = office.open()
        office.ledger.end(ticket, Outcome.COMPLETED, DONE)
        for phase in Phase:
            with pytest.raises(InternalError):
                ticket.advance(phase)


class TestProbes:
    def test_no_scrape_finds_a_probe_among_the_live(self, office: Office) -> None:
        """Whenever its thread looks, between any two lines of the ledger, while probes come and go."""
        office.open()
        seen: set[int] = set()

        def look(frame: FrameType, _event: str, _arg: object) -> Callable[..., Any] | None:
            if frame.f_globals["__name__"] != "actors.ledger":
                return None
            seen.add(office.ledger.live_count)
            return look

        before = sys.gettrace()
        sys.settrace(look)
        try:
            office.ledger.end(office.open(is_probe=True), Outcome.COMPLETED, DONE)
        finally:
            sys.settrace(before)
        assert seen == {1}

    def test_a_probe_takes_no_users_place(self, office: Office) -> None:
        """Probes are counted apart."""
        probe = office.open(is_probe=True)
        office.ledger.admit(probe, 1)
        assert (office.ledger.admitted, office.ledger.admitted_probes) == (0, 1)
        office.ledger.end(probe, Outcome.COMPLETED, DONE)
        assert (office.ledger.admitted, office.ledger.admitted_probes) == (0, 0)

    def test_a_probe_is_in_no_count(self, office: Office) -> None:
        """Neither started nor live nor in an outcome; it can be found and has its story like any other."""
        probe = office.open(is_probe=True)
        assert (office.ledger.started, office.ledger.live_count) == (0, 0)
        assert office.ledger.find(probe.engine_id) is probe
        assert not office.ledger.is_empty
        office.ledger.end(probe, Outcome.COMPLETED, DONE)
        assert sum(office.ledger.outcomes.values()) == 0
        assert office.listener.stories[probe.engine_id].is_probe


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["open", "admit"]), st.integers(0, 3)),
            st.tuples(st.just("end"), st.integers(0, 30)),
        ),
        max_size=80,
    )
)
def test_the_books_balance_after_every_action(actions: list[tuple[str, int]]) -> None:
    """started = live + outcomes, whatever is opened, admitted and ended in whatever order."""
    office = Office()
    ledger = office.ledger
    everyone: list[Ticket] = []
    for action, number in actions:
        if action == "end" and everyone:
            ledger.end(everyone[number % len(everyone)], list(Outcome)[number % len(Outcome)], DONE)
        elif action != "end":
            ticket = office.open(FakeCaller(f"context {number}"))
            everyone.append(ticket)
            if action == "admit":
                ledger.admit(ticket, number)
        live = [ticket for ticket in everyone if not ticket.is_ended]
        assert list(ledger.live()) == live
        assert ledger.started == len(everyone) == len(live) + sum(ledger.outcomes.values())
        assert ledger.admitted == sum(ticket.is_admitted for ticket in live)
        assert ledger.reserved_tokens == sum(ticket.reserved_tokens for ticket in live)
        for name in range(4):
            namesakes = [ticket for ticket in live if ticket.caller.context_id == f"context {name}"]
            assert list(ledger.of_context(f"context {name}")) == namesakes
