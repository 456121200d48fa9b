"""What is bounded and has no count of its own elsewhere; docs/operations.md says what happens then.

A bound that ends a request is counted by how it ended, or why it was refused. The others are here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Bound(StrEnum):
    """Each member has a row in the table "Everything has a bound", and a counter."""

    # The graph's.
    OUTBOX = "outbox"
    UNREAD_ANSWERS = "unread_answers"
    OVERTAKING = "overtaking"
    HEALTH_PROBES = "health_probes"
    UNKNOWN_KEYS = "unknown_keys"
    RESOLVER_LANE = "resolver_lane"
    EXECUTOR_LANE = "executor_lane"
    STREAMER_LANE = "streamer_lane"
    ENGINE_SEQUENCES = "engine_sequences"
    ENGINE_STOP = "engine_stop"
    # An engine's.
    UNDELIVERED_STEPS = "undelivered_steps"
    STEP_TOKENS = "step_tokens"
    KV_BLOCKS = "kv_blocks"
    KV_CACHE = "kv_cache"
    STEP_WAIT = "step_wait"
    FOREIGN_TIME = "foreign_time"
    FOREIGN_THREADS = "foreign_threads"
    GRAMMAR_WORK = "grammar_work"
    GRAMMAR_CACHE = "grammar_cache"
    TRIED_PROCESSORS = "tried_processors"
    CONSTRAINT_COST = "constraint_cost"
    PREPARING_TIME = "preparing_time"
    # The service's.
    STORIES = "stories"
    TRACE_ANSWER = "trace_answer"
    LOG_REPEATS = "log_repeats"
    LOG_KEYS = "log_keys"
    LOG_NAMES = "log_names"
    CONTROL_CALLS = "control_calls"
    READERS = "readers"
    DISCOVERY = "discovery"


class OnBound(Protocol):
    """Told that a bound was reached, and how often. Any thread; returns at once and never raises."""

    def __call__(self, bound: Bound, count: int = 1, /) -> None: ...


def ignore_bound(bound: Bound, count: int = 1, /) -> None:
    """Nobody counts."""
