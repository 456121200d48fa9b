"""Where a request may run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class SchedulingParams:
    """A wished rank under attention data parallelism; ``attention_dp_relax=False`` makes it an order."""

    attention_dp_rank: int | None = None
    attention_dp_relax: bool = True
    agent_hierarchy: list[tuple[str, int]] | None = None
