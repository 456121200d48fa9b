"""What one request is owed: tokens that wait, and the terminal in a seat of its own.

The streamer puts, ``generate()`` takes. A put never blocks and a terminal never queues, so no
reader can slow the loop that feeds the others, and none can miss its end. What waits when the
reader comes is merged into one chunk; the reader never waits in order to merge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.logprob_writer import LogprobWriter
from actors.wakeup import Wakeup
from protocols.chunks import GenerateChunk, usage_of
from protocols.errors import InternalError, ServiceError
from protocols.steps import Delta, EngineId, FinishReason, Position

# In an outbox all is one request's.
_OURS = EngineId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """The last word: a finish reason or a typed error, never both and never neither."""

    finish_reason: FinishReason | None = None
    index: int = 0
    stop_reason: int | str | None = None
    error: ServiceError | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    # Of a prefill: for the decode worker.
    handoff: dict[str, Any] | None = None


class Outbox:
    """Bounded by whoever fills it: ``on_flow`` is called when the bound is crossed, either way.

    bound_tokens: at this many waiting tokens the request is held; at half of it, it may go on.
    chunk_tokens: most tokens merged into one chunk.
    """

    def __init__(
        self, wakeup: Wakeup, clock: Callable[[], float], chunk_tokens: int, on_flow: Callable[[], None]
    ) -> None:
        self._wakeup = wakeup
        self._clock = clock
        self._chunk_tokens = chunk_tokens
        self._on_flow = on_flow
        # Of a delta that only goes on with one token, that token: a reader that is far behind costs a sixth.
        self._waiting: deque[Delta | int] = deque()
        self._put_index = self._taken_index = 0
        self.bound_tokens = 0
        self.waiting_tokens = 0
        self.taken_tokens = 0
        self._taken_chunks = 0
        # The reader's clock: since when it owes us a step. It runs while tokens wait, and from the end on.
        self.waiting_since_s: float | None = None
        self.is_held = False
        self.terminal: Terminal | None = None
        self.is_drained = False
        # Nobody waits for this reader any more, be it there or not.
        self.is_abandoned = False
        # Set with the terminal when tokens still wait: called when the last of them was taken.
        self.on_empty: Callable[[], None] | None = None
        # Set by the resolver for requests that asked for logprobs.
        self.logprobs: LogprobWriter | None = None

    def put(self, delta: Delta, now_s: float) -> None:
        """Streamer: owe these tokens. After the terminal nothing is owed any more."""
        if self.terminal is not None or not delta.token_ids:
            return
        if not self._waiting:
            self.waiting_since_s = now_s
        token_ids, index = delta.token_ids, delta.index
        is_bare = len(token_ids) == 1 and index == self._put_index and self.logprobs is None
        self._waiting.append(token_ids[0] if is_bare and self._waiting else delta)
        self._put_index = index
        self.waiting_tokens += len(token_ids)
        if self.waiting_tokens >= self.bound_tokens and not self.is_held:
            self.is_held = True
            self._on_flow()
        self._wakeup.set()

    def finish(self, terminal: Terminal, *, drop_waiting: bool = False) -> None:
        """Whoever ends the request: take the seat. The first to sit stays.

        drop_waiting: the reader has left; what it did not take counts as never delivered.
        """
        if self.terminal is not None:
            return
        self.terminal = terminal
        if drop_waiting:
            self.drop()
        if self.waiting_since_s is None:
            self.waiting_since_s = self._clock()
        self._wakeup.set()

    def abandon(self, terminal: Terminal) -> None:
        """Sweeper: the request has ended and its reader takes nothing. Should it come back, it gets this.

        Never the old last word: an answer without its last tokens must not look complete.
        """
        self.drop()
        self.is_abandoned = True
        if not self.is_drained:
            self.terminal = terminal

    def drop(self) -> None:
        """The reader is gone: nobody will take what waits."""
        self._waiting.clear()
        self.waiting_tokens = 0
        self.waiting_since_s = None
        # It knows the request, which knows this outbox.
        self.on_empty = None

    @property
    def chunks(self) -> int:
        """Taken, and what a reader that comes now makes of what waits; the last word's is among them."""
        # The one before is full: the first that waits begins a chunk.
        count, tokens = self._taken_chunks, self._chunk_tokens
        index, last = self._taken_index, None
        for waiting in self._waiting:
            size, is_same = 1, True
            if isinstance(waiting, Delta):
                size, is_same = len(waiting.token_ids), self._shares_chunk(index, last, waiting)
                index, last = waiting.index, waiting
            tokens += size
            if not is_same or tokens > self._chunk_tokens:
                count, tokens = count + 1, size
        return count + self._has_chunk_for_last_word()

    def _has_chunk_for_last_word(self) -> bool:
        """Errors are raised, and what waits of the same choice carries the end with it."""
        terminal = self.terminal
        if terminal is None or terminal.error is not None or self.is_drained:
            return False
        return not self._waiting or self._put_index != terminal.index

    def _shares_chunk(self, index: int, last: Delta | None, delta: Delta) -> bool:
        """As `_merged`, which asks for every token, has it in its loop. index, last: of what is before it."""
        if index != delta.index:
            return False
        logprobs = self.logprobs
        return logprobs is None or last is None or logprobs.is_told(last) == logprobs.is_told(delta)

    async def wait_terminal(self) -> None:
        """Reader: sleep until the last word is said (a reader that has left wants nothing else)."""
        while self.terminal is None:
            await self._wakeup.wait()

    async def take(self) -> GenerateChunk:
        """Reader: the next chunk, waiting for it if need be; tokens first, the terminal last.

        Raises the terminal's error when every token that was owed has been taken.
        """
        while not self._waiting and self.terminal is None:
            await self._wakeup.wait()
        if self._waiting:
            return self._next_chunk()
        terminal = self._last_word()
        if terminal.error is not None:
            raise terminal.error
        self._taken_chunks += 1
        return self._closed({"token_ids": [], "index": terminal.index}, terminal)

    def _next_chunk(self) -> GenerateChunk:
        waiting = self._waiting.popleft()
        # It goes on with what was taken last.
        first = waiting if isinstance(waiting, Delta) else Delta(_OURS, [waiting], self._taken_index)
        index = self._taken_index = first.index
        token_ids, positions = self._merged(first) if self._waiting else (first.token_ids, first.positions)
        self._taken_chunks += 1
        self.taken_tokens += len(token_ids)
        self.waiting_tokens -= len(token_ids)
        self.waiting_since_s = self._clock() if self._waiting or self.terminal is not None else None
        if self.on_empty is not None and not self._waiting:
            self.on_empty()
        if self.is_held and self.waiting_tokens <= self.bound_tokens // 2:
            self.is_held = False
            self._on_flow()
        chunk: GenerateChunk = {"token_ids": token_ids, "index": index}
        if self.logprobs is not None:
            self.logprobs.write(chunk, positions or ())
        terminal = self.terminal
        if terminal is None or self._waiting or terminal.error is not None or terminal.index != index:
            return chunk
        self._last_word()
        return self._closed(chunk, terminal)

    def _merged(self, first: Delta) -> tuple[list[int], list[Position]]:
        """As many following deltas of the same choice as fit into one chunk: their ids and positions."""
        token_ids = list(first.token_ids)
        logprobs, positions = self.logprobs, list(first.positions or ())
        while self._waiting:
            delta = self._waiting[0]
            if not isinstance(delta, Delta):
                if len(token_ids) >= self._chunk_tokens:
                    break
                token_ids.append(delta)
                self._waiting.popleft()
                continue
            if delta.index != first.index or len(token_ids) + len(delta.token_ids) > self._chunk_tokens:
                break
            if logprobs is not None:
                if logprobs.is_told(delta) != logprobs.is_told(first):
                    break
                positions += delta.positions or ()
            token_ids += delta.token_ids
            self._waiting.popleft()
        return token_ids, positions

    def _last_word(self) -> Terminal:
        if self.terminal is None or self.is_drained:
            raise InternalError("an outbox was read past its end")
        self.is_drained = True
        self.waiting_since_s = self._clock()
        return self.terminal

    def _closed(self, chunk: GenerateChunk, terminal: Terminal) -> GenerateChunk:
        if terminal.finish_reason is None:
            raise InternalError("a terminal has neither a finish reason nor an error")
        chunk["finish_reason"] = terminal.finish_reason.value
        if terminal.stop_reason is not None:
            chunk["stop_reason"] = terminal.stop_reason
        if terminal.handoff is not None:
            chunk["disaggregated_params"] = terminal.handoff
        if self.logprobs is not None:
            self.logprobs.close(chunk)
        chunk["completion_usage"] = usage_of(
            terminal.prompt_tokens, self.taken_tokens, terminal.cached_tokens
        )
        return chunk
