"""The bounds of the graph, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.spec import ProcessorEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """Set by the operator; checked by the service before the graph opens.

    max_live: requests alive at once, waiting and running together.
    chunk_tokens: most tokens in one chunk.
    outbox_tokens: waiting tokens at which one request is held (engines that can pause).
    outbox_total_tokens: sum of all outbox bounds, reserved at admission.
    engine_queue: sequences submitted beyond the engine's batch, for engines with a queue of their own.
    deadline_s: every request's time budget from its arrival; None means none.
    stall_timeout_s: how long tokens may wait for their reader.
    hang_timeout_s: how long an engine with something to do may go without a step or other progress.
    engine_stop_s: how long the way out waits for the engine; the process then ends with what is left of it.
    default_seed: seed of requests that bring none; None draws a fresh one for each.
    default_processors: logits processors of every request, before those it asks for itself.
    """

    max_live: int = 1024
    chunk_tokens: int = 32
    outbox_tokens: int = 256
    outbox_total_tokens: int = 4 * 1024 * 1024
    engine_queue: int = 0
    deadline_s: float | None = None
    stall_timeout_s: float = 30.0
    hang_timeout_s: float = 30.0
    # Of the 15 s the service leaves after a drain, 2 are the framework's, 4 its readers' and telemetry's.
    engine_stop_s: float = 9.0
    default_seed: int | None = None
    default_processors: tuple[ProcessorEntry, ...] = ()
