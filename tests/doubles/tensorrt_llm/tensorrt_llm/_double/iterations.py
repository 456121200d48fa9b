"""The stream of statistics, or of cache events: one for the life of an LLM."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator
from typing import cast

from tensorrt_llm._double.queues import queues_here

Row = dict[str, object]


class IterationResult:
    """Yields rows; ends when none has come for ``timeout`` seconds, and stays so until marked undone."""

    def __init__(self) -> None:
        self._done = False
        self._timeout = 2.0
        self.queue, self.aqueue = queues_here()

    def set_timeout(self, timeout: float) -> None:
        """In seconds, for the reads that follow."""
        self._timeout = timeout

    def mark_undone(self) -> None:
        """More rows are to be expected: a request was submitted."""
        self._done = False

    def get_results(self) -> list[Row]:
        """Everything until the timeout passes without a row."""
        rows: list[Row] = []
        while not self._done:
            try:
                rows.append(cast("Row", self.queue.get(timeout=self._timeout)))
            except (queue.Empty, TimeoutError):
                self._done = True
        return rows

    def __aiter__(self) -> AsyncIterator[Row]:
        return self

    async def __anext__(self) -> Row:
        if self._done:
            raise StopAsyncIteration
        assert self.aqueue is not None, "no event loop was running when it was made: it cannot be awaited"
        try:
            return cast("Row", await self.aqueue.get(timeout=self._timeout))
        except TimeoutError:
            self._done = True
            raise StopAsyncIteration from None
