"""What the engine has of ours, and what follows from it: is a step due, do users keep it busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from actors.ticket import Ticket
from actors.vetting import Transcript
from protocols.spec import GenerationSpec
from protocols.steps import EngineId


@dataclass(slots=True)
class Row:
    """A request the engine has. It costs ``spec.sequences`` until the engine's last delta."""

    ticket: Ticket
    spec: GenerationSpec
    transcript: Transcript
    is_paused: bool = False
    # When the engine was told to end it early, monotonic seconds.
    aborted_s: float | None = None
    looks_since_abort: int = 0

    @property
    def is_aborting(self) -> bool:
        """Whether nothing but the engine's confirmation is still expected of it."""
        return self.aborted_s is not None


class Rows:
    """batch: sequences that run at once. used: sequences the engine has, those being aborted included."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._rows: dict[EngineId, Row] = {}
        # The row of an id, None where the engine has none. Asked for every delta, hence no method.
        self.find: Callable[[EngineId], Row | None] = self._rows.get
        self.used = 0

    def __len__(self) -> int:
        """Requests. Any thread."""
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        """A snapshot, in the order of submission."""
        return iter(tuple(self._rows.values()))

    def add(self, row: Row) -> None:
        """The engine has taken it."""
        self._rows[row.ticket.engine_id] = row
        self.used += row.spec.sequences

    def remove(self, row: Row) -> None:
        """The engine has said its last about it."""
        del self._rows[row.ticket.engine_id]
        self.used -= row.spec.sequences

    @property
    def is_step_owed(self) -> bool:
        """A step is due for every abort, and for every request that runs and is not held back.

        Requests beyond the batch may be waiting inside the engine for those that are held.
        """
        if any(row.is_aborting for row in self):
            return True
        held = sum(row.spec.sequences for row in self if row.is_paused)
        return held < min(self._batch, self.used)

    @property
    def is_any_running(self) -> bool:
        """Whether somebody waits for tokens."""
        return any(not (row.is_aborting or row.is_paused) for row in self)

    @property
    def are_users_served(self) -> bool:
        """Whether the engine works for users, or they have taken every slot and hold it back."""
        users = [row for row in self if not row.ticket.is_probe]
        is_at_work = any(row.is_aborting or not row.is_paused for row in users)
        return is_at_work or sum(row.spec.sequences for row in users) >= self._batch
