"""What changes one sequence's logits beside the sampling options: its logits processors and its grammar.

Both are foreign code, run on side lanes and on a copy of the sequence's own row, so that they can
neither hold up nor touch a neighbour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from actors.engines.torch.grammars.matcher import GrammarState
from actors.engines.torch.processors import Processor
from actors.engines.torch.side_lane import Job, SideLane
from actors.engines.torch.steering_failed import SteeringFailed

# How long a job may hold up everybody once; a mask takes 0.1 ms and the first ones up to 10.
TURN_S = 0.02
# A request whose processor or grammar does not answer for this long is failed.
GIVE_UP_S = 10.0
# Threads that are stuck with somebody's code. At this many, whoever needs another one is failed at once.
MOST_LATE = 64


@dataclass(slots=True)
class Lanes:
    """The side lanes of an engine; masks do not wait behind processors."""

    masks: SideLane
    processors: SideLane

    @classmethod
    def open(cls, on_late_done: Callable[[], None]) -> Lanes:
        """Nothing runs until there is something to do."""
        return cls(
            masks=SideLane("torch-masks", TURN_S, on_late_done),
            processors=SideLane("torch-processors", TURN_S, on_late_done),
        )

    def close(self) -> None:
        """Their idle threads may go."""
        self.masks.close()
        self.processors.close()


@dataclass(slots=True, eq=False)
class Steering:
    """Of one sequence. Only the engine's thread calls it.

    processors: as the spec lists them. grammar: the state of its constraint, None without one.
    """

    lanes: Lanes
    processors: list[Processor]
    grammar: GrammarState | None
    row: Tensor | None = None
    is_slow: bool = False
    _jobs: list[Job] = field(default_factory=list[Job])
    _since_s: float = 0.0

    def prefetch(self) -> None:
        """Begin with the next mask while the model computes."""
        if self.grammar is not None:
            self._submit(self.lanes.masks, self.grammar.fill_mask)

    def begin(self, row: Tensor, tokens: list[int]) -> None:
        """Begin to change a copy of ``row`` ``[vocabulary]``; ``tokens`` are prompt and output so far."""
        self.row = row.clone()
        self._since_s = time.monotonic()
        if self.processors:
            changed, seen = self.row, list(tokens)
            self._submit(self.lanes.processors, lambda: self._process(changed, seen))

    def wait(self) -> None:
        """Until everything that was begun is done, or late."""
        self.lanes.processors.wait(self._jobs)
        self.lanes.masks.wait(self._jobs)

    @property
    def is_done(self) -> bool:
        """Whether `finish` may be called. Raises SteeringFailed when it took too long altogether."""
        if all(job.is_done for job in self._jobs):
            return True
        self.is_slow = True
        if time.monotonic() - self._since_s > GIVE_UP_S:
            raise SteeringFailed(f"{self._culprit()} did not return within {GIVE_UP_S:g} s")
        return False

    def finish(self) -> Tensor:
        """The changed row. Raises SteeringFailed when a processor or the grammar failed."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            if isinstance(job.error, SteeringFailed):
                raise job.error
            if job.error is not None:
                raise SteeringFailed(f"the grammar failed ({type(job.error).__name__})") from job.error
        row, self.row = self.row, None
        assert row is not None
        if self.grammar is not None:
            self.grammar.apply_mask(row)
        return row

    def accept(self, token: int) -> bool:
        """Note the token that was chosen. True when the grammar is complete and nothing may follow.

        Raises SteeringFailed when the grammar cannot go on.
        """
        return self.grammar is not None and self.grammar.accept(token)

    def _submit(self, lane: SideLane, run: Callable[[], None]) -> None:
        if lane.late_jobs >= MOST_LATE:
            raise SteeringFailed(f"{self._culprit()} cannot run: too many others have not returned")
        self._jobs.append(lane.submit(run, is_slow=self.is_slow))

    def _process(self, row: Tensor, tokens: list[int]) -> None:
        """On the side lane."""
        with torch.inference_mode():
            for processor in self.processors:
                processor.change(row, tokens)

    def _culprit(self) -> str:
        if self.processors:
            return "logits processor " + ", ".join(repr(processor.name) for processor in self.processors)
        return "the grammar"
