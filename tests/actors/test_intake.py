"""Promises of the intake: admitted or refused at once, typed, counted, and never a crash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.admission import STEPS_UNDER_WAY, Admission
from actors.intake import MOST_NAMED, RequestIntake
from actors.settings import GraphSettings
from protocols.bounds import Bound
from protocols.engine import EngineCapabilities
from protocols.errors import EngineShutdown, InvalidRequest, Overloaded
from protocols.messages import Admitted, Submit
from protocols.requests import is_probe
from protocols.steps import FinishReason
from protocols.telemetry import CancelReason, Outcome, Phase
from tests.actors.office import Office, closed_lane, last_word
from tests.doubles.callers import PROMPT, FakeCaller, wire_request
from tests.doubles.engines import engine_info


class Door:
    """An intake whose handler is called by hand."""

    def __init__(self, **bounds: Any) -> None:
        self.office = Office()
        self.admission = Admission(
            self.office.ledger,
            GraphSettings(**bounds),
            EngineCapabilities(can_pause=True, max_n=8),
            engine_info(),
        )
        # Whether the engine works for users, and moves.
        self.is_vouching = False
        self.intake = RequestIntake(
            closed_lane()[1],
            closed_lane()[0],
            self.office.ledger,
            self.admission,
            self.office.listener,
            lambda: self.is_vouching,
        )

    def knock(self, wire: Any = None, caller: FakeCaller | None = None) -> tuple[Any, Admitted | None]:
        wire = wire_request() if wire is None else wire
        ticket = self.office.open(caller, is_probe=is_probe(wire))
        return ticket, self.intake.on_submit(Submit(ticket.engine_id, wire))


@pytest.fixture
def door() -> Door:
    return Door()


def test_a_good_request_goes_on_with_what_the_ticket_must_know(door: Door) -> None:
    """Prompt length, stop strings, bound and reservation are written before anybody else looks."""
    ticket, admitted = door.knock(wire_request(stop=["\n"]))
    assert admitted is not None
    assert admitted.request.token_ids == list(PROMPT)
    assert (ticket.prompt_tokens, ticket.has_stop_strings, ticket.outbox.bound_tokens) == (4, True, 256)
    assert ticket.is_admitted
    assert ticket.times.admitted_s == door.office.now_s
    assert door.office.ledger.reserved_tokens == 256 + STEPS_UNDER_WAY


def test_a_caller_who_has_left_is_never_looked_at(door: Door) -> None:
    """Cancelled before admission: no place, no engine, outcome cancelled (S02 a)."""
    caller = FakeCaller()
    caller.leave()
    ticket, admitted = door.knock({"token_ids": "nonsense"}, caller)
    assert admitted is None
    assert (ticket.outcome, ticket.cancel_reason) == (Outcome.CANCELLED, CancelReason.CLIENT)
    assert door.office.listener.cancellations == {(CancelReason.CLIENT, Phase.RESOLVING): 1}
    assert door.office.listener.rejections == {}


def test_a_request_that_has_ended_is_dropped(door: Door) -> None:
    """A cancel may overtake its own request."""
    ticket = door.office.open()
    door.office.ledger.refuse(ticket, EngineShutdown("x"))
    assert door.intake.on_submit(Submit(ticket.engine_id, wire_request())) is None


def test_a_refusal_is_typed_counted_and_final(door: Door) -> None:
    """The caller gets the error itself; the books say refused; no place is kept."""
    ticket, admitted = door.knock(wire_request(max_tokens=0))
    assert admitted is None
    assert ticket.outcome is Outcome.REFUSED
    assert isinstance(last_word(ticket).error, InvalidRequest)
    assert door.office.listener.rejections == {"invalid_request": 1}
    assert (door.office.ledger.admitted, door.office.ledger.reserved_tokens) == (0, 0)


def test_a_refusal_at_a_full_door_comes_before_the_request_is_read(door: Door) -> None:
    """An overloaded worker spends nothing on requests it cannot take."""
    full = Door(max_live=1)
    full.knock()
    ticket, _ = full.knock({"token_ids": "nonsense"})
    assert isinstance(last_word(ticket).error, Overloaded)
    assert full.office.listener.rejections == {"max_live": 1}


def test_a_closed_door_says_draining(door: Door) -> None:
    """In the word that lets a frontend move the request."""
    door.admission.close()
    ticket, _ = door.knock()
    assert isinstance(last_word(ticket).error, EngineShutdown)
    assert door.office.listener.rejections == {"draining": 1}


def test_a_wrong_deadline_takes_no_place(door: Door) -> None:
    """What is refused late in the door's checks leaves nothing behind either."""
    ticket, _ = door.knock(caller=FakeCaller(metadata={"deadline-ms": "soon"}))
    assert ticket.outcome is Outcome.REFUSED
    assert door.office.ledger.admitted == 0


def test_unknown_keys_at_the_top_are_named_and_tolerated(door: Door) -> None:
    """Later frameworks add keys; each is reported, none stops a request."""
    _, admitted = door.knock(wire_request(brand_new=1, nothing=None))
    assert admitted is not None
    assert door.office.listener.unknown_keys == ["brand_new"]


def test_of_many_unknown_keys_only_the_first_are_named(door: Door) -> None:
    """Naming is work in the event loop; that there were more is counted, once a request."""
    _, admitted = door.knock(wire_request(**{f"key{number}": 1 for number in range(MOST_NAMED)}))
    assert admitted is not None
    assert door.office.listener.bounds == {}
    door.office.listener.unknown_keys.clear()
    _, admitted = door.knock(wire_request(**{f"key{number}": 1 for number in range(1000)}))
    assert admitted is not None
    assert door.office.listener.unknown_keys == [f"key{number}" for number in range(MOST_NAMED)]
    assert door.office.listener.bounds == {Bound.UNKNOWN_KEYS: 1}


def test_a_mark_that_is_not_exactly_true_is_refused_by_name(door: Door) -> None:
    """Not half believed: neither a probe nor a user's request."""
    ticket, _ = door.knock(wire_request(_HEALTH_CHECK="yes"))
    assert ticket.outcome is Outcome.REFUSED


def test_a_refused_probe_is_in_no_count(door: Door) -> None:
    """Two at once are one too many; no figure of users shows it, only the bound's own."""
    first, _ = door.knock(wire_request(_HEALTH_CHECK=True))
    second, _ = door.knock(wire_request(_HEALTH_CHECK=True))
    assert first.is_admitted
    assert isinstance(last_word(second).error, Overloaded)
    assert door.office.listener.rejections == {}
    assert door.office.listener.bounds == {Bound.HEALTH_PROBES: 1}


def test_probes_are_answered_at_the_door_while_the_engine_shows_that_it_lives(door: Door) -> None:
    """Any number, beside one that runs, and on a full worker: none takes a place, none is counted."""
    door.knock(wire_request(_HEALTH_CHECK=True))
    door.is_vouching = True
    for _ in range(3):
        probe, admitted = door.knock(wire_request(_HEALTH_CHECK=True))
        assert (probe.outcome, admitted, probe.is_admitted) == (Outcome.COMPLETED, None, False)
        assert last_word(probe).finish_reason is FinishReason.LENGTH
        assert last_word(probe).prompt_tokens == len(PROMPT)
    assert (door.office.ledger.admitted, door.office.ledger.admitted_probes) == (0, 1)
    assert (door.office.listener.rejections, door.office.listener.bounds) == ({}, {})


def test_an_engine_that_lives_answers_no_user_and_opens_no_door(door: Door) -> None:
    """Users get their own tokens, wrong probes are told so, and a draining worker takes no probe."""
    door.is_vouching = True
    user, admitted = door.knock()
    assert (user.is_ended, admitted is None) == (False, False)
    wrong, _ = door.knock(wire_request(token_ids="no list", _HEALTH_CHECK=True))
    assert isinstance(last_word(wrong).error, InvalidRequest)
    door.admission.close()
    late, _ = door.knock(wire_request(_HEALTH_CHECK=True))
    assert isinstance(last_word(late).error, EngineShutdown)


def test_a_probe_whose_caller_left_is_no_cancellation(door: Door) -> None:
    """Nobody counts it."""
    caller = FakeCaller()
    caller.leave()
    probe, _ = door.knock(wire_request(_HEALTH_CHECK=True), caller)
    assert (probe.outcome, probe.cancel_reason) == (Outcome.CANCELLED, CancelReason.CLIENT)
    assert door.office.listener.cancellations == {}


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = sorted({*wire_request(), "routing", "extra_args", "_HEALTH_CHECK", "prompt_embeds", "unknown"})
Wires = st.one_of(
    Json,
    st.dictionaries(st.sampled_from(KEYS), Json, max_size=6),
    st.dictionaries(st.sampled_from(KEYS), Json, max_size=3).map(lambda odd: {**wire_request(), **odd}),
)


@given(wire=Wires)
@example(wire=[])
@example(wire="request")
@example(wire={1: 2})
@example(wire={**wire_request(), None: 1})
@example(wire=wire_request(temperature=10**400))
def test_whatever_arrives_is_admitted_or_refused(wire: Any) -> None:
    """No request, however malformed, makes the intake raise; each is in exactly one book."""
    door = Door()
    ticket, admitted = door.knock(wire)
    assert ticket.is_ended == (admitted is None)
    assert door.office.ledger.admitted + door.office.ledger.admitted_probes == (admitted is not None)
    if admitted is None:
        assert isinstance(last_word(ticket).error, InvalidRequest | Overloaded)
        assert sum(door.office.listener.rejections.values()) == (not ticket.is_probe)
