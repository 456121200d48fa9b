"""How much may be read in all, by many calls at once."""

from __future__ import annotations

from threading import Lock


class AllowanceSpent(Exception):
    """There is nothing left. Says how much there was."""


class Allowance:
    """Bytes of answers; what was read counts, also of those that made no sense. Any thread."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._lock = Lock()

    def take(self, length: int) -> None:
        """Raises AllowanceSpent when there are not so many left, and from then on."""
        with self._lock:
            self._left -= length
            if self._left < 0:
                raise AllowanceSpent(f"all answers together have more than {self._most >> 20} MiB")
