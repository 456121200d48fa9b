"""What the log says about requests and about the worker's life. Counts, times and reasons; never content."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from protocols.bounds import Bound, ignore_bound
from protocols.telemetry import AbortResult, Outcome, WorkerState
from service.telemetry.identifiers import callers_id, shown_id
from service.telemetry.logs import get_logger

if TYPE_CHECKING:
    from protocols.bounds import OnBound
    from protocols.telemetry import AbortStory, CancelReason, DrainReport, Phase, RequestStory
    from service.telemetry.figures import Figures

_WARNED = frozenset({Outcome.DEADLINE, Outcome.STALLED, Outcome.FAILED, Outcome.INTERRUPTED})


class RequestLog:
    """One line a request, at its end; one line a change of the worker; a heartbeat while draining.

    on_bound: told of what was not written as it came. Belongs to the event loop, except where said.
    """

    def __init__(self, on_bound: OnBound = ignore_bound) -> None:
        self._on_bound = on_bound
        self._requests = get_logger("actor.request")
        self._is_written = logging.getLogger("actor.request").isEnabledFor
        self._worker = get_logger("actor.worker")
        self._state: WorkerState | None = None
        self._since_s = time.monotonic()
        # Until the first line of a drain is written.
        self._drain_begins = False

    def request_ended(self, story: RequestStory, figures: Figures) -> None:
        """The line of one request. A health probe's is for those who debug. Unwritten it costs a question."""
        level = _level_of(story)
        if not self._is_written(level):
            return
        fields = {**_fields_of(story), **_times_of(figures), **self._ids_of(story, figures)}
        if level == logging.DEBUG:
            self._requests.debug("request.probe", **fields)
        elif level == logging.WARNING:
            self._requests.warning("request.ended", **fields)
        else:
            self._requests.info("request.ended", **fields)

    def request_named_unknown(self, key: str) -> None:
        """A request carried a key that means nothing here."""
        name = self._shown(key)
        self._requests.warning("request.unknown_key", key=name, once_per=name)

    def request_cancelled(self, reason: CancelReason, phase: Phase) -> None:
        """A request is being ended early; its own line follows at its end."""
        self._requests.debug("request.cancelling", reason=reason.value, phase=phase.value)

    def abort_told(self, abort: AbortStory) -> None:
        """One that the engine did not confirm in time is said to everybody: its slot is still taken."""
        since_s = round(abort.at_s - abort.asked_s, 6)
        if abort.result is AbortResult.TIMED_OUT:
            self._worker.warning(
                "engine.abort_not_confirmed", engine_id=abort.engine_id, since_s=since_s, once_per="abort"
            )
        else:
            self._worker.debug(
                "engine.abort", engine_id=abort.engine_id, result=abort.result.value, since_s=since_s
            )

    def state_changed(self, state: WorkerState) -> None:
        """The worker moved on. before_s: how long it was what it was before."""
        now_s = time.monotonic()
        before_s, self._since_s = now_s - self._since_s, now_s
        before, self._state = self._state, state
        self._drain_begins = state is WorkerState.DRAINING
        say = self._worker.error if state is WorkerState.FAILED else self._worker.info
        say(
            "worker.state",
            state=state.value,
            before=None if before is None else before.value,
            before_s=round(before_s, 3),
        )

    def drain_progress(self, remaining: int, left_s: float) -> None:
        """Called by the drain at its start, on every rung and every 5 s. left_s: until the last rung."""
        if not remaining:
            return
        if self._drain_begins:
            self._drain_begins = False
            self._worker.info("drain.started", remaining=remaining, left_s=round(left_s, 3))
        else:
            self._worker.info("drain.waiting", remaining=remaining, left_s=round(left_s, 3))

    def readers_awaited(self, readers: int, left_s: float) -> None:
        """Nobody is live, and so many still read their last tokens. Every 5 s. left_s: at most so long."""
        about = f"waiting for {readers} reader{'' if readers == 1 else 's'}"
        self._worker.info("drain.reading", about=about, readers=readers, left_s=round(left_s, 3))

    def answer_not_read(self) -> None:
        """A request has ended, and its client takes nothing of what is left."""
        self._requests.warning("request.not_read", once_per="unread")

    def drain_ended(self, report: DrainReport) -> None:
        """Nobody is live any more. A warning where the shutdown ended somebody."""
        say = self._worker.warning if report.interrupted else self._worker.info
        say(
            "drain.ended",
            about=_interrupted(report.interrupted) if report.interrupted else None,
            live_at_start=report.live_at_start,
            completed=report.completed,
            ended_otherwise=report.ended_otherwise,
            moved=report.moved,
            interrupted=report.interrupted,
            seconds=round(report.seconds, 3),
        )

    def engine_left_behind(self) -> None:
        """The way out does not wait for the engine any longer."""
        self._worker.warning("engine.stop_timed_out")

    def loop_stalled(self, seconds: float) -> None:
        """The event loop woke a timer that much too late. Once a minute; the histogram has all of them."""
        self._worker.warning("loop.stalled", seconds=round(seconds, 3), once_per="loop")

    def loop_stands(self, seconds: float, where: str) -> None:
        """Any thread: the event loop stands still, since so long and there. Of one place once a minute."""
        self._worker.warning("loop.stands_still", seconds=round(seconds, 3), where=where, once_per=where)

    def spans_lost(self, reason: str, count: int) -> None:
        """Any thread. The counter has them all; here it is said once a minute."""
        self._worker.warning("trace.spans_lost", reason=reason, count=count, once_per=reason)

    def _ids_of(self, story: RequestStory, figures: Figures) -> dict[str, Any]:
        """Ours, Dynamo's, the caller's; trace and span as the framework's own lines name them."""
        trace, before = figures.trace, story.predecessor
        callers = callers_id(story.trace_headers)
        return {
            "engine_id": story.engine_id,
            "context_id": self._shown(story.context_id),
            "x_request_id": None if callers is None else self._shown(callers),
            "trace_id": None if trace is None else trace.trace_id,
            "span_id": None if trace is None else trace.span_id,
            "is_sampled": None if trace is None else trace.is_sampled,
            "predecessor_trace_id": None if before is None else before.trace_id,
            "predecessor_span_id": None if before is None else before.span_id,
        }

    def _shown(self, name: str) -> str:
        """What a caller chose, as it may be written."""
        shown = shown_id(name)
        if shown != name:
            self._on_bound(Bound.LOG_NAMES)
        return shown

    def listener_failed(self, listener: str, error: Exception) -> None:
        """Something of ours is broken: by its type, since its text may carry anything."""
        self._worker.error(
            "telemetry.listener_failed", listener=listener, error=type(error).__name__, once_per=listener
        )


def _interrupted(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'} interrupted by shutdown"


def _level_of(story: RequestStory) -> int:
    if story.is_probe:
        return logging.DEBUG
    return logging.WARNING if story.outcome in _WARNED else logging.INFO


def _fields_of(story: RequestStory) -> dict[str, Any]:
    """How far it came, how it ended, and what it cost."""
    return {
        "outcome": story.outcome,
        "phase": story.phase,
        "finish_reason": story.finish_reason,
        "finish_reasons": _reasons_of(story),
        "cancel_reason": story.cancel_reason,
        "error_kind": story.error_kind,
        "error": story.error_text,
        "failure_cause": story.failure_cause,
        "reject_reason": story.reject_reason,
        "refused_field": story.refused_field,
        "is_moved": story.is_moved or None,
        "n": story.n,
        "max_tokens": story.max_tokens,
        "prompt_tokens": story.prompt_tokens,
        "cached_tokens": story.cached_tokens,
        "completion_tokens": story.completion_tokens,
        "chunks": story.chunks,
        "preemptions": story.preemptions or None,
    }


def _times_of(figures: Figures) -> dict[str, float | None]:
    return {
        "request_s": _rounded(figures.request_s),
        "queue_s": _rounded(figures.queue_s),
        "ttft_s": _rounded(figures.ttft_s),
        "itl_mean_s": _rounded(figures.itl_mean_s),
        "itl_p50_s": _rounded(figures.itl_p50_s),
        "cancelled_s": _rounded(figures.cancelled_s),
    }


def _reasons_of(story: RequestStory) -> str | None:
    """By choice, where there are several; a choice that an error ended has none."""
    return ",".join(reason or "none" for reason in story.finish_reasons) if story.n > 1 else None


def _rounded(seconds: float | None) -> float | None:
    """To the microsecond."""
    return None if seconds is None else round(seconds, 6)
