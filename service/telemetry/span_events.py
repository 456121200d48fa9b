"""The moments inside a request that its spans name.

Each stands on the span of the hop in which it happened, at its true time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocols.telemetry import CancelReason
from service.telemetry.figures import HopName
from service.telemetry.span_attributes import waiting_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocols.telemetry import RequestStory
    from service.telemetry.figures import Figures
    from service.telemetry.span_attributes import Attributes


class Moment(NamedTuple):
    """One event to be; monotonic seconds."""

    hop: HopName
    at_s: float
    name: str
    attributes: Attributes | None = None


def moments_of(story: RequestStory, figures: Figures) -> list[Moment]:
    """In the order of time. Of preemptions those whose time the story kept; the span has their number."""
    moments = [*_of_the_engine(story, figures), *_of_the_end(story, figures)]
    moments.sort(key=_time_of)
    return moments


def cancelled_s_of(figures: Figures) -> float:
    """When it was wished that the request ends early; its end where nobody noted it."""
    if figures.cancelled_s is None:
        return figures.hops[-1].end_s
    return figures.hops[0].start_s + figures.cancelled_s


def _of_the_engine(story: RequestStory, figures: Figures) -> Iterator[Moment]:
    if figures.submitted_s is None or len(figures.hops) < 3:
        return
    execute = figures.hops[2]
    yield Moment(
        HopName.EXECUTE,
        figures.submitted_s,
        "submitted",
        {"actor.waiting_ms": waiting_ms(execute, figures)},
    )
    for at_s in story.preempted_s:
        yield Moment(_hop_at(at_s, figures), at_s, "preempted")
    if len(figures.hops) > 3:
        yield Moment(HopName.EXECUTE, execute.end_s, "first_token")


def _of_the_end(story: RequestStory, figures: Figures) -> Iterator[Moment]:
    if story.cancel_reason is None:
        return
    at_s = cancelled_s_of(figures)
    hop = _hop_at(at_s, figures)
    if story.cancel_reason is CancelReason.DEADLINE:
        yield Moment(hop, at_s, "deadline")
    else:
        yield Moment(hop, at_s, "cancelled", {"actor.cancel.reason": story.cancel_reason.value})


def _hop_at(at_s: float, figures: Figures) -> HopName:
    """A hop lasts until the next one begins, the last one for ever."""
    began = (hop.name for hop in reversed(figures.hops) if hop.start_s <= at_s)
    return next(began, figures.hops[0].name)


def _time_of(moment: Moment) -> float:
    return moment.at_s
