"""What all executors have in common: client ids, errors that wait in the background, and the two streams."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from typing import cast

from tensorrt_llm._double.iterations import IterationResult, Row
from tensorrt_llm._double.wire import GenerationRequest
from tensorrt_llm.executor.result import GenerationResult
from tensorrt_llm.executor.utils import CppExecutorError, RequestError

__all__ = ["CppExecutorError", "GenerationExecutor"]

_LARGEST_ID = 2**64 - 1


class GenerationExecutor(ABC):
    """Where requests are submitted. Client ids are taken without a lock, as in the library."""

    def __init__(self) -> None:
        self.doing_shutdown = False
        self._fatal_error: BaseException | None = None
        # Errors of threads and of the engine's process, for whoever comes next.
        self._error_queue: queue.Queue[BaseException | str] = queue.Queue()
        self._last_client_id = 1
        self._iter_stats_result: IterationResult | None = None
        self._iter_kv_events_result: IterationResult | None = None

    @abstractmethod
    def submit(self, request: GenerationRequest) -> GenerationResult:
        """Give the request its id and send it. Raises EngineDeadError, and what waits in the background."""

    @abstractmethod
    def abort_request(self, request_id: int) -> None:
        """Ask for an early end by the client id; unknown and finished ones do no harm."""

    @abstractmethod
    def shutdown(self) -> None:
        """Blocks until everything has ended; may raise what waits in the background."""

    @abstractmethod
    def get_stats(self, timeout: float) -> list[Row]:
        """Blocks; takes the rows that are there."""

    @abstractmethod
    def get_kv_events(self, timeout: float) -> list[Row]:
        """Blocks; takes the events that are there."""

    @abstractmethod
    def get_kv_cache_capacity(self) -> Row:
        """Blocks; {} where it is not known."""

    @abstractmethod
    def get_disaggregated_params(self) -> Row:
        """Blocks; what the cache transceiver tells others, {} without one."""

    def aget_stats(self, timeout: float) -> IterationResult:
        """Blocks as `get_stats` does, then gives the stream; errors are an empty batch."""
        return self._filled(self._stats_stream(), self._or_nothing("stats", timeout), timeout)

    def aget_kv_events(self, timeout: float | None = None) -> IterationResult:
        """Blocks as `get_kv_events` does, then gives the stream."""
        wait_s = 2.0 if timeout is None else timeout
        return self._filled(self._events_stream(), self._or_nothing("events", wait_s), wait_s)

    def is_shutdown(self) -> bool:
        """Whether it is shutting down, has shut down, or has had a fatal error."""
        return self.doing_shutdown or self._fatal_error is not None

    def check_health(self) -> bool:
        """Look at what is known here, without asking the engine. Any thread."""
        if self.is_shutdown():
            return False
        self._drain_error_queue()
        return not self.is_shutdown()

    def _drain_error_queue(self) -> None:
        """Errors of requests are thrown away; the first one of the system is kept and ends the executor."""
        while True:
            try:
                error = self._error_queue.get_nowait()
            except queue.Empty:
                return
            if not isinstance(error, str | RequestError):
                self._set_fatal_error(error)
                self._on_fatal_error()
                return

    def _on_fatal_error(self) -> None:
        """After a health check has found one."""
        self.shutdown()

    def _set_fatal_error(self, error: BaseException) -> None:
        """The first one is kept, for good."""
        if self._fatal_error is None:
            self._fatal_error = error

    def _handle_background_error(self, error: BaseException | str | None = None) -> None:
        """Raise this error, or the first one that waits, to who called; a system's one ends everything."""
        if error is None:
            try:
                error = self._error_queue.get_nowait()
            except queue.Empty:
                return
        if isinstance(error, str):
            error = RequestError(error)
        if not isinstance(error, RequestError):
            self._set_fatal_error(error)
            self.shutdown()
        raise error

    def _get_next_client_id(self) -> int:
        self._last_client_id = (self._last_client_id + 1) & _LARGEST_ID
        return self._last_client_id

    def _expect_rows(self) -> None:
        """A request was submitted: streams that had ended go on."""
        self._stats_stream().mark_undone()
        self._events_stream().mark_undone()

    def _stats_stream(self) -> IterationResult:
        if self._iter_stats_result is None:
            self._iter_stats_result = IterationResult()
        return self._iter_stats_result

    def _events_stream(self) -> IterationResult:
        if self._iter_kv_events_result is None:
            self._iter_kv_events_result = IterationResult()
        return self._iter_kv_events_result

    def _or_nothing(self, what: str, timeout: float) -> list[Row]:
        try:
            return self.get_stats(timeout) if what == "stats" else self.get_kv_events(timeout)
        except Exception:
            return []

    @staticmethod
    def _filled(stream: IterationResult, rows: list[Row], timeout: float) -> IterationResult:
        stream.set_timeout(timeout)
        stream.mark_undone()
        for row in rows:
            stream.queue.put(cast("object", row))
        return stream
