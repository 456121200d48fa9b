"""A request that was moved has a life on each of its workers: they are joined here, on one time axis."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from protocols.telemetry import Outcome
from service.inspection.story import Story, Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What had all it asked for is not continued by anybody.
_SERVED = frozenset({Outcome.COMPLETED, Outcome.STOPPED_BY_FRONTEND})
# At these a frontend tries another worker.
_MOVING_ERRORS = frozenset({"EngineShutdown", "EngineDead"})
# Between two lives that no word joins. A frontend tries the next worker within milliseconds of reading the
# end of a life; that may lie unread for 30 s (--stall-timeout), and as much again is for clocks that differ.
# Beyond that it is a client who uses its id again.
_LONGEST_APART_S = 60.0


class Life(Struct, frozen=True):
    """One request on one worker, in its place on the request's time axis.

    start_ms: from the request's first arrival. gap_ms: since the life before it ended; None of a first one,
    and where the clocks of two workers say that it began before that. They contradict each other by
    overlap_ms then, and it is placed where the life before it ended.
    """

    worker: Worker
    story: Story
    start_ms: float = 0.0
    gap_ms: float | None = None
    overlap_ms: float = 0.0

    @property
    def key(self) -> tuple[str, int]:
        """The same however often, and by whichever address, its worker was asked."""
        return (self.worker.instance_id or self.worker.url, self.story.engine_id)

    @property
    def order(self) -> tuple[datetime, str, int, str, str]:
        """By arrival; no two lives have the same place, unless their worker contradicts itself."""
        return (self.story.arrived_at, *self.key, self.worker.url, self.story.context_id)

    @property
    def ended_at(self) -> datetime:
        """By the clock of its worker."""
        return self.story.arrived_at + timedelta(milliseconds=self.story.duration_ms)

    @property
    def end_ms(self) -> float:
        """On the request's time axis."""
        return self.start_ms + self.story.duration_ms

    @property
    def is_left_open(self) -> bool:
        """Whether a frontend may have gone on with it on another worker: never with several choices."""
        if self.story.outcome == Outcome.INTERRUPTED:
            return self.story.is_moved
        return self.story.error_kind in _MOVING_ERRORS and self.story.n == 1

    def apart_s(self, later: Life) -> float:
        """Between its end and the arrival of the other one, whichever was first by their clocks."""
        return abs(later.story.arrived_at - self.ended_at).total_seconds()


class Journey(Struct, frozen=True):
    """One request with all its lives that were told, in their order."""

    lives: tuple[Life, ...]

    @property
    def first(self) -> Life:
        """Where it arrived, as far as is known."""
        return self.lives[0]

    @property
    def last(self) -> Life:
        """Where it got its outcome."""
        return self.lives[-1]

    @property
    def duration_ms(self) -> float:
        """From the first arrival to the last end."""
        return self.last.end_ms

    @property
    def ttft_ms(self) -> float | None:
        """From the first arrival to the first token."""
        firsts = (life.start_ms + life.story.ttft_ms for life in self.lives if life.story.ttft_ms is not None)
        return next(firsts, None)

    @property
    def completion_tokens(self) -> int:
        """Of all lives: each counts its own."""
        return sum(life.story.completion_tokens for life in self.lives)

    @property
    def is_beginning_missing(self) -> bool:
        """Whether it continues a life that nobody told of."""
        return self.first.story.predecessor is not None

    @property
    def is_incomplete(self) -> bool:
        """Whether other workers may know more of it."""
        return self.is_beginning_missing or self.last.is_left_open


def journeys_of(lives: Iterable[Life]) -> list[Journey]:
    """Every request once, by arrival; the same whatever the order in which the lives were told."""
    by_context: defaultdict[str, dict[tuple[str, int], Life]] = defaultdict(dict)
    for life in sorted(lives, key=lambda life: life.order):
        namesakes = by_context[life.story.context_id]
        known = namesakes.setdefault(life.key, life)
        if known.order == life.order and repr(life) < repr(known):
            namesakes[life.key] = life
    journeys = [
        Journey(_placed(chain))
        for namesakes in by_context.values()
        for chain in _chains(list(namesakes.values()))
    ]
    return sorted(journeys, key=lambda journey: journey.first.order)


def _chains(lives: Sequence[Life]) -> list[list[Life]]:
    """Lives of one context id, in the order of their arrivals, as the requests that they belong to."""
    later: dict[tuple[str, int], Life] = {}
    heads = {life.key: life for life in lives}
    for life in lives:
        before = [
            other
            for other in lives
            if other.key not in later and _may_continue(life, other) and not _leads_to(life, other, later)
        ]
        if before:
            later[_nearest(life, before).key] = life
            del heads[life.key]
    return [_chain_from(head, later) for head in heads.values()]


def _nearest(life: Life, before: Iterable[Life]) -> Life:
    """The one that ended when this one arrived."""
    return min(before, key=lambda other: (other.apart_s(life), other.order))


def _may_continue(life: Life, other: Life) -> bool:
    """Whether ``life`` can be what became of ``other``.

    A frontend that traces says in the later life which trace the one before it was in. Without that word it
    has to be one that was left open not long ago, and the clocks of the two workers have to agree about the
    order.
    """
    if other is life or other.story.outcome in _SERVED:
        return False
    is_earlier = other.order < life.order
    link = life.story.predecessor
    if link is None:
        return other.is_left_open and is_earlier and other.apart_s(life) <= _LONGEST_APART_S
    is_same_trace = other.story.trace_id in (None, link.trace_id)
    return is_same_trace and (is_earlier or other.story.predecessor is None)


def _leads_to(life: Life, other: Life, later: dict[tuple[str, int], Life]) -> bool:
    """Whether ``other`` is a continuation of ``life`` already: clocks that contradict could close a ring."""
    return any(step.key == other.key for step in _chain_from(life, later))


def _chain_from(head: Life, later: dict[tuple[str, int], Life]) -> list[Life]:
    chain = [head]
    while (following := later.get(chain[-1].key)) is not None:
        chain.append(following)
    return chain


def _placed(chain: Sequence[Life]) -> tuple[Life, ...]:
    """Each where its clock says, but never before the end of the one before it."""
    placed = [chain[0]]
    for life in chain[1:]:
        before = placed[-1]
        # Both arrivals are wall times of their own workers.
        apart = life.story.arrived_at - before.story.arrived_at
        gap_ms = round(apart / timedelta(milliseconds=1) - before.story.duration_ms, 3)
        placed.append(
            structs.replace(
                life,
                start_ms=round(before.end_ms + max(gap_ms, 0.0), 3),
                gap_ms=gap_ms if gap_ms >= 0 else None,
                overlap_ms=-gap_ms if gap_ms < 0 else 0.0,
            )
        )
    return tuple(placed)
