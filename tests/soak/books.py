"""What the clients saw beside what the worker says, request by request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.e2e.request_lines import request_lines, trace_id
from tests.soak.clients import Told, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NEVER_SEEN = "never seen"
# What may have become, at the worker, of a request that looked like this from outside. A client that leaves
# may come too late, or too early for the frontend to have told anybody. One that stalls for some seconds has
# only left: what it did not read, the frontend took.
_FITS: dict[View, frozenset[str]] = {
    View.EXACT: frozenset({"completed"}),
    View.ERROR: frozenset({"failed"}),
    View.LEFT: frozenset({"cancelled", "completed", "failed", _NEVER_SEEN}),
    View.STALLED: frozenset({"cancelled", "failed"}),
    View.STALLED_LONG: frozenset({"stalled", "failed"}),
}
_ERROR = "out of memory for this request"


@dataclass(slots=True)
class Comparison:
    """table: how many requests of each view ended in each outcome. flaws: what does not fit."""

    table: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    flaws: list[str] = field(default_factory=list)


def compare(
    told: Iterable[Told], log: Iterable[str], before: Mapping[str, int], after: Mapping[str, int]
) -> Comparison:
    """Every client's view against the worker's line; then the lines against the worker's counters."""
    found = Comparison()
    lines = request_lines(log)
    counted: Counter[str] = Counter()
    for each in told:
        ended = lines.get(trace_id(each.number), [])
        outcome = "+".join(line["outcome"] for line in ended) or _NEVER_SEEN
        counted.update(line["outcome"] for line in ended)
        found.table[each.view.value, outcome] += 1
        if outcome not in _FITS.get(each.view, frozenset()):
            found.flaws.append(
                f"{each.number} ({each.kind}): {each.view}, the worker says {outcome}: {each.detail}"
            )
        found.flaws += [
            f"{each.number}: failed by itself: {line.get('error')}"
            for line in ended
            if line["outcome"] == "failed" and line.get("error") != _ERROR
        ]
    for outcome, count in after.items():
        if count - before[outcome] != counted[outcome]:
            found.flaws.append(
                f"the worker counts {count - before[outcome]} {outcome}, its log {counted[outcome]}"
            )
    return found
