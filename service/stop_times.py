"""From when the budgets of a shutdown count, and what they leave of it now."""

from __future__ import annotations

import time

from actors.drain import DrainLadder
from service.options.budgets import FLUSH_S, DrainBudgets
from service.stopping import StopSignals


class StopTimes:
    """The budgets, laid out from when the stop was asked for. All times are monotonic; any thread."""

    def __init__(self, signals: StopSignals, budgets: DrainBudgets) -> None:
        self._signals = signals
        self._budgets = budgets

    @property
    def asked_s(self) -> float:
        """When it was asked for: the first signal, or, where none was seen, a grace ago.

        Nobody waits a grace for a control route, and the framework cleans up after its grace.
        """
        return self._signals.first_s or time.monotonic() - self._budgets.grace_s

    @property
    def read_by_s(self) -> float:
        """When the last answer has been read, or its reader is left behind."""
        return self.asked_s + self._budgets.read_by_s

    @property
    def flush_at_s(self) -> float:
        """When nothing but what telemetry still has to send may keep the worker."""
        return self.asked_s + self._budgets.return_by_s - FLUSH_S

    def ladder(self) -> DrainLadder:
        """The rungs of a drain that begins now; who was asked twice ends everything at once."""
        now_s, asked_s = time.monotonic(), self.asked_s
        started_s = self._signals.first_s or now_s
        if self._signals.is_forced:
            return DrainLadder(started_s=started_s, move_at_s=now_s, end_at_s=now_s)
        return DrainLadder(
            started_s=started_s,
            move_at_s=asked_s + self._budgets.move_at_s,
            end_at_s=asked_s + self._budgets.drain_until_s,
        )
