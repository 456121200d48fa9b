"""All lanes of the graph: who reads what, and how much fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.mailbox import Mailbox
from protocols.errors import InternalError
from protocols.messages import Admitted, ExecutorControl, MonitorControl, Resolved, Submit
from protocols.steps import EngineStep

T = TypeVar("T")

# Per-request data lanes. They cannot overflow: at most --max-live requests exist at all.
DATA_LANE = 64
# Steps on their way from the executor to the streamer; when full, the engine waits.
STEP_LANE = 4
# Messages a request can have under way on a control lane: to the monitor that its caller left and, twice,
# that its reader is gone; to the executor a Cancel and a Flow.
CONTROL_PER_REQUEST = 4


class Lane(NamedTuple, Generic[T]):
    """Both ends. The reading end belongs to one actor; a second writer gets a clone of the other."""

    send: MemoryObjectSendStream[T]
    receive: MemoryObjectReceiveStream[T]


@dataclass(frozen=True, slots=True)
class Lanes:
    """One field a lane, named for its reader."""

    intake: Lane[Submit]
    resolver: Lane[Admitted]
    executor: Lane[Resolved]
    streamer: Lane[EngineStep]
    monitor: Lane[MonitorControl]
    executor_control: Lane[ExecutorControl]

    @classmethod
    def of(cls, max_live: int) -> Lanes:
        """Sized for so many live requests: lanes that must not be full cannot be."""
        arriving = max_live + DATA_LANE
        control = CONTROL_PER_REQUEST * (max_live + arriving + DATA_LANE)
        return cls(
            Lane(*anyio.create_memory_object_stream[Submit](arriving)),
            Lane(*anyio.create_memory_object_stream[Admitted](DATA_LANE)),
            Lane(*anyio.create_memory_object_stream[Resolved](DATA_LANE)),
            Lane(*anyio.create_memory_object_stream[EngineStep](STEP_LANE)),
            Lane(*anyio.create_memory_object_stream[MonitorControl](control)),
            Lane(*anyio.create_memory_object_stream[ExecutorControl](control)),
        )

    def mailboxes(self) -> list[Mailbox]:
        """Depth and capacity of each. Any thread: the figures are counters."""
        return [_mailbox(field.name, getattr(self, field.name)) for field in fields(self)]

    def close(self) -> None:
        """Nobody writes any more; an actor that still reads finds the end."""
        for field in fields(self):
            getattr(self, field.name).send.close()


def _mailbox(name: str, lane: Lane[Any]) -> Mailbox:
    figures = lane.send.statistics()
    if math.isinf(figures.max_buffer_size):
        raise InternalError("a lane of the graph has no bound")
    return Mailbox(name, figures.current_buffer_used, int(figures.max_buffer_size))
