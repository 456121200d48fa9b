"""Every message that goes from one actor to another, and who sends it.

Commands are in the imperative, facts in the past. Messages are frozen and carry ids; what an id
stands for is looked up in the ledger, so a message about a request that has ended is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from protocols.requests import GenerateRequest
from protocols.spec import GenerationSpec
from protocols.steps import EngineId
from protocols.telemetry import CancelReason


class Submit(Struct, frozen=True):
    """facade -> intake. One call of ``generate()``, as the framework sent it."""

    engine_id: EngineId
    wire: Mapping[str, Any]


class Admitted(Struct, frozen=True):
    """intake -> resolver. Shape checked, counted, its outbox reserved."""

    engine_id: EngineId
    request: GenerateRequest


class Resolved(Struct, frozen=True):
    """resolver -> executor. Nothing about the request can be wrong any more."""

    engine_id: EngineId
    spec: GenerationSpec


class Unprepared(Struct, frozen=True):
    """resolver -> its own second loop. Resolved, but the engine has to prepare something first.

    parked_s: when that was found out, monotonic seconds.
    """

    engine_id: EngineId
    spec: GenerationSpec
    parked_s: float


class Cancel(Struct, frozen=True):
    """monitor -> executor. Idempotent; an unknown id is ignored."""

    engine_id: EngineId
    reason: CancelReason


class Flow(Struct, frozen=True):
    """streamer or facade -> executor. The outbox crossed its bound; look at it and pause or resume."""

    engine_id: EngineId


class CancelContext(Struct, frozen=True):
    """facade -> monitor. The client of every stopped request with this context id has left."""

    context_id: str


class ReaderGone(Struct, frozen=True):
    """facade -> monitor. The generator of this request will not be read again."""

    engine_id: EngineId


class EndLive(Struct, frozen=True):
    """drain coordinator -> monitor. End the live requests up to this id; ``only_movable`` spares the others.

    The id is the last one of the drain: a message that is read late ends nobody who came after it.
    """

    last_id: EngineId
    only_movable: bool


ExecutorControl = Cancel | Flow
MonitorControl = CancelContext | ReaderGone | EndLive
