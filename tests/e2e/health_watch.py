"""Somebody who asks a worker for its health all the time, as a kubelet does, only more often."""

from __future__ import annotations

import http.client
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.stacks import Worker

_POLL_S = 0.1


class HealthWatch:
    """Asks ``/health`` again and again, in a thread of its own, and keeps every answer that is not 200."""

    def __init__(self, worker: Worker) -> None:
        self.polls = 0
        self.bad: list[str] = []
        self._worker = worker
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> HealthWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(30)

    def _watch(self) -> None:
        while not self._is_over.wait(_POLL_S):
            self.polls += 1
            try:
                status, text = self._worker.system.get("/health", timeout_s=20.0)
            except (OSError, http.client.HTTPException) as exc:
                status, text = 0, repr(exc)
            if status != 200:
                self.bad.append(f"{status}: {text[:300]}")
