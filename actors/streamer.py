"""Chunk streamer: what a step means for each request in it."""

from __future__ import annotations

from contextlib import closing

from actors.ledger import Ledger
from actors.outbox import Terminal
from actors.step_lane import StepLane
from actors.ticket import Ticket
from protocols.errors import GenerationFailed
from protocols.steps import Delta, EngineId, EngineStep, FinishReason
from protocols.telemetry import Outcome, Telemetry

MOST_PREEMPTIONS = 8
"""Of one request whose times are kept; all are counted."""


class ChunkStreamer:
    """executor -> **streamer** -> outbox -> ``generate()``. Never waits for a reader."""

    def __init__(self, inbox: StepLane, ledger: Ledger, telemetry: Telemetry) -> None:
        self._inbox = inbox
        self._ledger = ledger
        self._telemetry = telemetry

    async def run(self) -> None:
        """Until the executor has closed its end."""
        with closing(self._inbox):
            async for step in self._inbox:
                self.on_step(step)

    def on_step(self, step: EngineStep) -> None:
        """Give every request its tokens, and those that ended their last word.

        Requests that ended early (cancelled, timed out) are no longer in the ledger: what the
        engine still says about them is nobody's.
        """
        tokens = 0
        for engine_id in step.preempted:
            self._note_preempted(engine_id, step.started_s)
        for delta in step.deltas:
            ticket = self._ledger.find(delta.engine_id)
            if ticket is None:
                continue
            if delta.timing is not None:
                ticket.engine_timing = delta.timing
            if ticket.times.first_token_s is None:
                _begin(ticket, delta, step.ended_s)
            if delta.token_ids:
                ticket.outbox.put(delta, step.ended_s)
                ticket.pacing.note(step.ended_s, len(delta.token_ids))
                tokens += 0 if ticket.is_probe else len(delta.token_ids)
            if delta.is_last:
                self._end(ticket, delta)
            elif delta.finish_reason is not None:
                ticket.finish_reasons[delta.index] = delta.finish_reason.value
        self._telemetry.step_done(step, tokens)

    def _note_preempted(self, engine_id: EngineId, now_s: float) -> None:
        ticket = self._ledger.find(engine_id)
        if ticket is None:
            return
        ticket.preemptions += 1
        if len(ticket.preempted_s) < MOST_PREEMPTIONS:
            ticket.preempted_s.append(now_s)

    def _end(self, ticket: Ticket, delta: Delta) -> None:
        """The last word of the whole request: on the wire, the reason of its last choice.

        An engine that cancels what nobody asked to cancel has failed.
        """
        if delta.error is not None:
            self._fail(ticket, delta.error)
        elif delta.finish_reason is FinishReason.CANCELLED:
            self._fail(ticket, "the engine cancelled the request by itself")
        else:
            terminal = Terminal(
                finish_reason=delta.finish_reason,
                index=delta.index,
                stop_reason=delta.stop_reason,
                prompt_tokens=ticket.prompt_tokens,
                cached_tokens=ticket.cached_tokens,
                handoff=delta.handoff,
            )
            self._ledger.end(ticket, Outcome.COMPLETED, terminal)

    def _fail(self, ticket: Ticket, text: str) -> None:
        self._ledger.end(ticket, Outcome.FAILED, Terminal(error=GenerationFailed(text)))


def _begin(ticket: Ticket, delta: Delta, now_s: float) -> None:
    """What comes before the first token or with it: the time, and what was found about the prompt."""
    if delta.token_ids:
        ticket.times.first_token_s = now_s
    if delta.cached_tokens and not ticket.has_prefilled_prompt:
        ticket.cached_tokens = delta.cached_tokens
    if delta.prompt_positions is not None and ticket.outbox.logprobs is not None:
        ticket.outbox.logprobs.prompt_positions = delta.prompt_positions
