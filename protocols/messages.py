"""Every message that goes from one actor to another, and who sends it.

Commands are in the imperative, facts in the past. Messages are frozen and carry ids; what an id
stands for is looked up in the ledger, so a message about a request that has ended is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocols.requests import GenerateRequest
from protocols.spec import GenerationSpec
from protocols.steps import EngineId
from protocols.telemetry import CancelReason


@dataclass(frozen=True, slots=True)
class Submit:
    """facade -> intake. One call of ``generate()``, as the framework sent it."""

    engine_id: EngineId
    wire: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Admitted:
    """intake -> resolver. Shape checked, counted, its outbox reserved."""

    engine_id: EngineId
    request: GenerateRequest


@dataclass(frozen=True, slots=True)
class Resolved:
    """resolver -> executor. Nothing about the request can be wrong any more."""

    engine_id: EngineId
    spec: GenerationSpec


@dataclass(frozen=True, slots=True)
class Cancel:
    """monitor -> executor. Idempotent; an unknown id is ignored."""

    engine_id: EngineId
    reason: CancelReason


@dataclass(frozen=True, slots=True)
class Flow:
    """streamer or facade -> executor. The outbox crossed its bound; look at it and pause or resume."""

    engine_id: EngineId


@dataclass(frozen=True, slots=True)
class CancelContext:
    """facade -> monitor. The client of every stopped request with this context id has left."""

    context_id: str


@dataclass(frozen=True, slots=True)
class ReaderGone:
    """facade -> monitor. The generator of this request will not be read again."""

    engine_id: EngineId


@dataclass(frozen=True, slots=True)
class EndLive:
    """drain coordinator -> monitor. End live requests now; ``only_movable`` spares the others."""

    only_movable: bool


ExecutorControl = Cancel | Flow
MonitorControl = CancelContext | ReaderGone | EndLive
