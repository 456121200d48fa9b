"""How far one choice has been told, and why it ended."""

from __future__ import annotations

from typing import Any

from actors.engines.trtllm.requests.sampling import stop_ids
from protocols.spec import StopRules
from protocols.steps import FinishReason

_REASONS = {"length": FinishReason.LENGTH, "cancelled": FinishReason.CANCELLED}


class Choice:
    """One of a request's choices. told: tokens. reason: None while it is open, and of an end that is none."""

    __slots__ = ("_ends", "_late_ids", "_stop", "index", "reason", "stop_reason", "told")

    def __init__(self, index: int, stop: StopRules) -> None:
        self._stop = stop
        self._late_ids = stop_ids(stop).late
        self._ends = stop.eos_token_ids | stop.stop_token_ids
        self.index = index
        self.told = 0
        self.reason: FinishReason | None = None
        self.stop_reason: int | str | None = None

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is told of it."""
        return self.reason is not None

    def hear(self, output: Any) -> list[int]:
        """The ids that are new in ``CompletionOutput``, and from now on are told; notes why it ended."""
        token_ids: list[int] = output.token_ids[self.told :]
        if output.finish_reason is not None:
            self._note_end(output)
        if self._late_ids and token_ids:
            token_ids = self._cut(token_ids)
        self.told += len(token_ids)
        return token_ids

    def _note_end(self, output: Any) -> None:
        """Of its other words, "timeout" is no end that a caller wants, and "not_finished" none at all.

        An id that ends an answer may be the last one that was asked for: some releases say "length" then.
        """
        last = output.token_ids[-1] if output.token_ids else None
        if output.finish_reason == "stop":
            self._stopped(output.stop_reason)
        elif output.finish_reason == "length" and last in self._ends:
            self._stopped(last)
        else:
            self.reason = _REASONS.get(output.finish_reason)

    def _stopped(self, at: int | str | None) -> None:
        """The engine names the id or the text that ended it, and nothing for its own end id."""
        if at is None or at in self._stop.eos_token_ids:
            self.reason = FinishReason.EOS
        else:
            self.reason, self.stop_reason = FinishReason.STOP, at

    def _cut(self, token_ids: list[int]) -> list[int]:
        """End at the first id that ends it and may: of these the engine was not told."""
        for place, token in enumerate(token_ids, start=1):
            if token in self._late_ids and self.told + place > self._stop.min_tokens:
                self._stopped(token)
                return token_ids[:place]
        return token_ids
