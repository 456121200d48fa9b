"""What the log says about requests and about the worker's life. Counts, times and reasons; never content."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from protocols.telemetry import Outcome, WorkerState
from service.telemetry.identifiers import shown_id
from service.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocols.telemetry import RequestStory
    from service.telemetry.figures import Figures

_WARNED = frozenset({Outcome.DEADLINE, Outcome.STALLED, Outcome.FAILED, Outcome.INTERRUPTED})


class RequestLog:
    """One line a request, at its end; one line a change of the worker; a heartbeat while draining.

    clock: the graph's. Belongs to the event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests = get_logger("actor.request")
        self._worker = get_logger("actor.worker")
        self._state: WorkerState | None = None
        # Until when a drain may take, on the graph's clock; None while nobody said.
        self.drain_ends_s: float | None = None

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """The line of one request. A health probe's is for those who debug."""
        fields = _fields_of(story, figures)
        if story.is_probe:
            self._requests.debug("request.probe", **fields)
        elif story.outcome in _WARNED:
            self._requests.warning("request.ended", **fields)
        else:
            self._requests.info("request.ended", **fields)

    def request_named_unknown(self, key: str) -> None:
        """A request carried a key that means nothing here."""
        name = shown_id(key)
        self._requests.warning("request.unknown_key", key=name, once_per=name)

    def abort_timed_out(self) -> None:
        """The engine did not confirm an abort in time: its slot is still taken."""
        self._worker.warning("engine.abort_not_confirmed", once_per="abort")

    def state_changed(self, state: WorkerState) -> None:
        """The worker moved on."""
        before, self._state = self._state, state
        say = self._worker.error if state is WorkerState.FAILED else self._worker.info
        say("worker.state", state=state.value, before=None if before is None else before.value)

    def drain_progress(self, remaining: int) -> None:
        """Called by the drain at its start, on every rung and every 5 s."""
        if remaining == 0:
            return
        ends_s = self.drain_ends_s
        left_s = None if ends_s is None else round(max(0.0, ends_s - self._clock()), 3)
        self._worker.info("drain.waiting", remaining=remaining, left_s=left_s)

    def drain_ended(self, seconds: float) -> None:
        """Nobody is live any more."""
        self.drain_ends_s = None
        self._worker.info("drain.ended", seconds=round(seconds, 3))

    def spans_lost(self, reason: str, count: int) -> None:
        """Any thread. The counter has them all; here it is said once a minute."""
        self._worker.warning("trace.spans_lost", reason=reason, count=count, once_per=reason)

    def listener_failed(self, listener: str, error: Exception) -> None:
        """Something of ours is broken: by its type, since its text may carry anything."""
        self._worker.error(
            "telemetry.listener_failed", listener=listener, error=type(error).__name__, once_per=listener
        )


def _fields_of(story: RequestStory, figures: Figures) -> dict[str, Any]:
    trace = figures.trace
    return {
        "outcome": story.outcome,
        "phase": story.phase,
        "finish_reason": story.finish_reason,
        "finish_reasons": _reasons_of(story),
        "cancel_reason": story.cancel_reason,
        "error_kind": story.error_kind,
        "error": story.error_text,
        "n": story.n,
        "prompt_tokens": story.prompt_tokens,
        "cached_tokens": story.cached_tokens,
        "completion_tokens": story.completion_tokens,
        "request_s": round(figures.request_s, 6),
        "queue_s": _rounded(figures.queue_s),
        "ttft_s": _rounded(figures.ttft_s),
        "itl_mean_s": _rounded(figures.itl_mean_s),
        "engine_id": story.engine_id,
        "context_id": shown_id(story.context_id),
        "trace_id": None if trace is None else trace.trace_id,
    }


def _reasons_of(story: RequestStory) -> str | None:
    """By choice, where there are several; a choice that an error ended has none."""
    return ",".join(reason or "none" for reason in story.finish_reasons) if story.n > 1 else None


def _rounded(seconds: float | None) -> float | None:
    """To the microsecond."""
    return None if seconds is None else round(seconds, 6)
