"""Where resolved requests wait for a slot: priority first, then arrival.

Within one priority nobody waits for ever; a low priority waits for as long as higher ones keep coming.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.messages import Resolved
from protocols.steps import EngineId

# A request that needs several slots is passed at most this often by smaller ones behind it;
# then slots are kept free until it fits. One engine batch of small requests may pass.
PASSES_ALLOWED = 64


@dataclass(order=True, slots=True)
class _Seat:
    key: tuple[float, int]
    resolved: Resolved = field(compare=False)
    passes: int = field(default=0, compare=False)


class WaitingRoom:
    """Ordered by (-priority, arrival). Sizes are in sequences: a request costs its ``n``.

    on_bound: told when a request has been passed for the last time.
    """

    def __init__(self, on_bound: OnBound = ignore_bound) -> None:
        self._on_bound = on_bound
        self._seats: list[_Seat] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._seats)

    def add(self, resolved: Resolved) -> None:
        """Sit down behind everyone of the same or a higher priority."""
        self._arrivals += 1
        insort(self._seats, _Seat((-resolved.spec.priority, self._arrivals), resolved))

    def discard(self, engine_id: EngineId) -> bool:
        """Leave without having been called. False when nobody of this id is here."""
        for place, seat in enumerate(self._seats):
            if seat.resolved.engine_id == engine_id:
                del self._seats[place]
                return True
        return False

    def next_fitting(self, free_sequences: int) -> Resolved | None:
        """Call the first one that fits; None when nobody may go now."""
        for place, seat in enumerate(self._seats):
            if seat.resolved.spec.sequences <= free_sequences:
                del self._seats[place]
                self._count_passes(place)
                return seat.resolved
            if seat.passes >= PASSES_ALLOWED:
                return None
        return None

    def _count_passes(self, place: int) -> None:
        """Everyone who sat before the one that was called has been passed once."""
        for seat in self._seats[:place]:
            seat.passes += 1
            if seat.passes == PASSES_ALLOWED:
                self._on_bound(Bound.OVERTAKING)
