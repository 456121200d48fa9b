"""How long after a client has hung up its request is ended in the worker.

The worker's own story of the request says when that was; the engine hears of it in the same turn of the loop
or the next. Both clocks are the machine's, so the difference is exact to some microseconds.
"""

from __future__ import annotations

import json
import socket
import statistics
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from service.demo.client import Client
from tests.bench.arena import Arena, Shape, our_worker
from tests.bench.load import percentile, request_of
from tests.bench.parts import OURS, STEP_MS

IDLE, BESIDE_PACED = "nothing", "64 paced streams"
_HANG_UPS = 200
# Each lasts 38 s, longer than all hang-ups: none ends meanwhile and pushes a story out of the last 16.
_BESIDE = Shape(concurrency=64, requests=64, tokens=1900)
_TOKENS = 1000
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class CancelCase:
    """Milliseconds from the client's close to the request's end, one value a hang-up."""

    beside: str
    delays_ms: list[float]

    def percentile_ms(self, share: float) -> float:
        """See `percentile`."""
        return percentile(self.delays_ms, share)

    @property
    def median_ms(self) -> float:
        """Of all hang-ups."""
        return statistics.median(self.delays_ms)


def measure_cancels(folder: Path, model: Path) -> list[CancelCase]:
    """With an idle worker, then beside 64 paced streams."""
    with Arena(folder / "cancel", [our_worker(OURS, model, STEP_MS)]) as arena:
        arena.measure(OURS, Shape(concurrency=64, requests=64, tokens=32))
        known, idle = _hang_up_often(arena, known=0)
        with arena.under_load(OURS, _BESIDE):
            _, paced = _hang_up_often(arena, known)
    return [CancelCase(IDLE, idle), CancelCase(BESIDE_PACED, paced)]


def _hang_up_often(arena: Arena, known: int) -> tuple[int, list[float]]:
    """Delays in ms; and the id of the last request, since the next ones have higher ids than ``known``."""
    worker = Client(arena.system_ports[OURS])
    delays_ms: list[float] = []
    for _ in range(_HANG_UPS):
        closed_s = _hang_up(arena.http_port)
        known, ended_s = _end_of_next(worker, known)
        delays_ms.append((ended_s - closed_s) * 1e3)
    return known, delays_ms


def _hang_up(port: int) -> float:
    """Ask, read until tokens come, close. Returns the wall time of the close."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request_of(OURS, _TOKENS))
        got = b""
        while b"data: {" not in got:
            piece = connection.recv(4096)
            assert piece, got
            got += piece
        return time.time()


def _end_of_next(worker: Client, known: int) -> tuple[int, float]:
    """The first cancelled request with a higher id than ``known``: its id and the wall time of its end."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up_s:
        _, body = worker.post("/engine/control/trace", {"which": "last"})
        for story in json.loads(body)["stories"]:
            if story["outcome"] == "cancelled" and story["engine_id"] > known:
                return story["engine_id"], _ended_s(story)
        time.sleep(0.005)
    raise TimeoutError("a request whose client has left was not ended")


def _ended_s(story: dict[str, Any]) -> float:
    return datetime.fromisoformat(story["arrived_at"]).timestamp() + float(story["duration_ms"]) / 1e3
