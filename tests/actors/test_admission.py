"""Promises of the door: open or closed, places counted, memory reserved, deadlines understood or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.admission import DEADLINE_KEY, STEPS_UNDER_WAY, Admission
from actors.outbox import Terminal
from actors.settings import GraphSettings
from protocols.engine import EngineCapabilities, EngineInfo
from protocols.errors import EngineShutdown, InvalidRequest, Overloaded
from protocols.requests import decode_request
from protocols.steps import FinishReason
from protocols.telemetry import Outcome
from tests.actors.office import Office
from tests.doubles.callers import FakeCaller, wire_request
from tests.doubles.engines import engine_info

if TYPE_CHECKING:
    from actors.ticket import Ticket

CONTEXT = 100


def door(
    office: Office, *, can_pause: bool = True, max_n: int = 8, info: EngineInfo | None = None, **bounds: Any
) -> Admission:
    capabilities = EngineCapabilities(can_pause=can_pause, max_n=max_n, max_logprobs=20)
    info = info or engine_info(context_length=CONTEXT)
    return Admission(office.ledger, GraphSettings(**bounds), capabilities, info)


def knocking(office: Office, *, is_probe: bool = False) -> Ticket:
    """A request that stands at the door."""
    return office.open(is_probe=is_probe)


def come_in(office: Office, *, is_probe: bool = False, tokens: int = 0) -> Ticket:
    ticket = knocking(office, is_probe=is_probe)
    office.ledger.admit(ticket, tokens)
    return ticket


@pytest.fixture
def office() -> Office:
    return Office()


class TestPlaces:
    def test_a_full_worker_refuses_with_a_retry_hint(self, office: Office) -> None:
        """The refusal names the bound, its option and when to come back (S15)."""
        admission = door(office, max_live=2)
        come_in(office)
        admission.check_room(knocking(office))
        come_in(office)
        with pytest.raises(Overloaded, match=r"2 requests .*--max-live.*retry after 1 s") as refusal:
            admission.check_room(knocking(office))
        assert (refusal.value.reason, refusal.value.retry_after_s) == ("max_live", 1.0)

    def test_an_ended_request_makes_room(self, office: Office) -> None:
        """A place is free the moment its request ends."""
        admission = door(office, max_live=1)
        ticket = come_in(office)
        office.ledger.end(ticket, Outcome.CANCELLED, Terminal(finish_reason=FinishReason.CANCELLED))
        admission.check_room(knocking(office))

    def test_a_closed_door_refuses_everybody(self, office: Office) -> None:
        """A draining worker takes nobody, probes included, and says so in the word that moves requests."""
        admission = door(office)
        admission.close()
        for is_probe in (False, True):
            with pytest.raises(EngineShutdown):
                admission.check_door(knocking(office, is_probe=is_probe))

    def test_who_was_on_the_way_when_it_closed_still_comes_in(self, office: Office) -> None:
        """A request that was sent before the signal is not lost to it; one sent after it is refused."""
        admission = door(office)
        before = knocking(office)
        admission.close()
        admission.check_door(before)
        with pytest.raises(EngineShutdown):
            admission.check_door(knocking(office))
        admission.open()
        admission.check_door(knocking(office))

    def test_a_closed_door_that_is_closed_again_lets_nobody_in(self, office: Office) -> None:
        """Who knocked in between was too late for the first time."""
        admission = door(office)
        admission.close()
        late = knocking(office)
        admission.close()
        with pytest.raises(EngineShutdown):
            admission.check_door(late)

    def test_a_probe_finds_a_place_on_a_full_worker(self, office: Office) -> None:
        """A full worker still shows that it is alive."""
        admission = door(office, max_live=1)
        come_in(office)
        admission.check_room(knocking(office, is_probe=True))

    def test_there_is_one_place_for_probes(self, office: Office) -> None:
        """A probe flag opens no second door: the reserved place is one, and bounded like the others."""
        admission = door(office, max_live=1)
        come_in(office, is_probe=True)
        with pytest.raises(Overloaded):
            admission.check_room(knocking(office, is_probe=True))
        admission.check_room(knocking(office))


class TestReserve:
    @pytest.mark.parametrize(
        ("max_tokens", "n", "reserved"),
        [(900, 1, 16 + STEPS_UNDER_WAY), (90, 4, 16 + 4 * STEPS_UNDER_WAY), (10, 1, 10), (10, 4, 40)],
    )
    def test_an_engine_that_can_pause_reserves_one_bound(
        self, office: Office, max_tokens: int, n: int, reserved: int
    ) -> None:
        """And what is under way for each choice when it is held back; never more than it asks for."""
        request = decode_request(wire_request(max_tokens=max_tokens, n=n))
        admission = door(office, outbox_tokens=16)
        assert admission.reserve(request) == reserved
        assert admission.bound_of(request) == 16

    @pytest.mark.parametrize(("asked", "weight"), [(0, 1), (4, 5), (20, 21), (99, 21), (-3, 1)])
    def test_logprobs_weigh_as_much_as_their_candidates(
        self, office: Office, asked: int, weight: int
    ) -> None:
        """A waiting token with twenty rivals is no plain token; what will be refused reserves no nonsense."""
        request = decode_request(wire_request(logprobs=asked))
        admission = door(office, outbox_tokens=16)
        assert admission.reserve(request) == (16 + STEPS_UNDER_WAY) * weight
        assert admission.bound_of(request) == 16

    def test_prompt_logprobs_weigh_too(self, office: Office) -> None:
        """One position for each token of the prompt, all of them delivered at once."""
        request = decode_request(wire_request(prompt=(1, 2, 3), prompt_logprobs=4))
        assert door(office, outbox_tokens=16).reserve(request) == 16 + STEPS_UNDER_WAY + 3 * 5

    def test_one_that_cannot_reserves_all_it_will_ever_say(self, office: Office) -> None:
        """max_tokens for each choice, and never more than the context has room for."""
        admission = door(office, can_pause=False)
        assert admission.reserve(decode_request(wire_request(max_tokens=10, n=2))) == 20
        assert admission.reserve(decode_request(wire_request(max_tokens=10**9))) == CONTEXT - 4
        assert admission.reserve(decode_request(wire_request())) == CONTEXT - 4

    def test_a_passed_total_is_an_overload(self, office: Office) -> None:
        """Memory for readers is a bound like any other: named, with a retry hint."""
        admission = door(office, outbox_tokens=16, outbox_total_tokens=48)
        come_in(office, tokens=16)
        assert admission.reserve(decode_request(wire_request())) == 16 + STEPS_UNDER_WAY
        come_in(office, tokens=16)
        with pytest.raises(Overloaded, match="--outbox-total-tokens") as refusal:
            admission.reserve(decode_request(wire_request()))
        assert refusal.value.reason == "outbox_tokens"

    @pytest.mark.parametrize("n", [-5, 0, 10**9])
    def test_a_wrong_n_is_not_taken_for_an_overload(self, office: Office, n: int) -> None:
        """An n that the resolver will refuse by name neither reserves below zero nor says 'try again'."""
        admission = door(office, can_pause=False, outbox_total_tokens=10 * CONTEXT)
        assert 1 <= admission.reserve(decode_request(wire_request(n=n))) <= 10 * CONTEXT

    def test_what_can_never_fit_is_not_told_to_try_again(self, office: Office) -> None:
        """A request larger than the whole total is refused by name, not with a retry hint."""
        admission = door(office, can_pause=False, outbox_total_tokens=50)
        with pytest.raises(InvalidRequest, match=r"max_tokens.*50.*--outbox-total-tokens"):
            admission.reserve(decode_request(wire_request(max_tokens=60)))
        assert admission.reserve(decode_request(wire_request(max_tokens=50))) == 50


class TestDeadline:
    def test_it_counts_from_the_arrival(self, office: Office) -> None:
        """Time in our queues is part of the budget."""
        ticket = office.open(FakeCaller(metadata={DEADLINE_KEY: "1500"}))
        office.now_s += 60
        door(office).set_deadline(ticket)
        assert (ticket.budget_s, ticket.deadline_s) == (1.5, 101.5)

    @pytest.mark.parametrize(("header", "budget_s"), [("500", 0.5), ("90000", 30.0), (None, 30.0)])
    def test_the_sooner_of_both_holds(self, office: Office, header: str | None, budget_s: float) -> None:
        """A client may ask for less time than the operator gives, never for more."""
        ticket = office.open(FakeCaller(metadata={} if header is None else {DEADLINE_KEY: header}))
        door(office, deadline_s=30.0).set_deadline(ticket)
        assert ticket.budget_s == budget_s

    def test_no_deadline_is_none(self, office: Office) -> None:
        """Nobody asked for one, so nobody gets one."""
        ticket = office.open()
        door(office).set_deadline(ticket)
        assert ticket.deadline_s is None

    @pytest.mark.parametrize(
        "header", ["0", "-1", "", "soon", "nan", "inf", "1e999", "86400001", "0x10", ["5"]]
    )
    def test_a_header_that_is_no_time_is_refused_by_name(self, office: Office, header: Any) -> None:
        """The message names header, value and range; nothing else is ever raised."""
        ticket = office.open(FakeCaller(metadata={DEADLINE_KEY: header}))
        with pytest.raises(InvalidRequest, match=r"x-dynamo-meta-deadline-ms: .*above 0, at most 86400000"):
            door(office).set_deadline(ticket)

    @pytest.mark.parametrize("header", ["86400000", "0.5", " 7 ", "1e3"])
    def test_every_number_in_range_is_a_deadline(self, office: Office, header: str) -> None:
        """The edges belong to the range."""
        ticket = office.open(FakeCaller(metadata={DEADLINE_KEY: header}))
        door(office).set_deadline(ticket)
        assert ticket.budget_s == float(header) / 1000
