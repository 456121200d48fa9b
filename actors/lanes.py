"""All lanes of the graph: who reads what, and how much fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.mailbox import Mailbox
from actors.step_lane import StepLane
from actors.wakeup import Wakeup
from protocols.errors import InternalError
from protocols.messages import Admitted, ExecutorControl, MonitorControl, Resolved, Submit, Unprepared

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

    @property
    def waiting(self) -> int:
        """Messages that the reader has not taken yet."""
        return self.send.statistics().current_buffer_used

    @property
    def capacity(self) -> int:
        """Messages that fit."""
        size = self.send.statistics().max_buffer_size
        if math.isinf(size):
            raise InternalError("a lane of the graph has no bound")
        return int(size)

    def close(self) -> None:
        """Close the first writer's end."""
        self.send.close()


@dataclass(frozen=True, slots=True)
class Lanes:
    """One field a lane, named for its reader."""

    intake: Lane[Submit]
    resolver: Lane[Admitted]
    resolver_parked: Lane[Unprepared]
    executor: Lane[Resolved]
    streamer: StepLane
    monitor: Lane[MonitorControl]
    executor_control: Lane[ExecutorControl]

    @classmethod
    def of(cls, max_live: int, new_wakeup: Callable[[], Wakeup]) -> Lanes:
        """Sized for so many live requests: lanes that must not be full cannot be."""
        arriving = max_live + DATA_LANE
        control = CONTROL_PER_REQUEST * (max_live + arriving + DATA_LANE)
        return cls(
            Lane(*anyio.create_memory_object_stream[Submit](arriving)),
            Lane(*anyio.create_memory_object_stream[Admitted](DATA_LANE)),
            Lane(*anyio.create_memory_object_stream[Unprepared](max_live)),
            Lane(*anyio.create_memory_object_stream[Resolved](DATA_LANE)),
            StepLane(STEP_LANE, new_wakeup),
            Lane(*anyio.create_memory_object_stream[MonitorControl](control)),
            Lane(*anyio.create_memory_object_stream[ExecutorControl](control)),
        )

    def mailboxes(self) -> list[Mailbox]:
        """Depth and capacity of each. Any thread: the figures are counters."""
        return [Mailbox(name, lane.waiting, lane.capacity) for name, lane in self._named()]

    def close(self) -> None:
        """Nobody writes any more; an actor that still reads finds the end."""
        for _, lane in self._named():
            lane.close()

    def _named(self) -> list[tuple[str, Lane[Any] | StepLane]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]
