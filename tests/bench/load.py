"""The load generator, a process of its own: connections that ask again as soon as they have their answer.

    python -m tests.bench.load JSON         prints one line of JSON

While it runs it only notes bytes and times; it decodes and checks the answers afterwards.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import cast

import uvloop

from tests.bench.answers import Answer, read_answer
from tests.bench.cpu_clock import cpu_s

_PROMPT = "w5 w6 w7 w8 w9 w10 w11 w12"
# The end of a chunked HTTP body. An event ends with two newlines, so it cannot be mistaken for one.
_END = b"\r\n0\r\n\r\n"
_GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run against one model. pids: whose CPU time to read around it, by name."""

    port: int
    model: str
    concurrency: int
    requests: int
    tokens: int
    pids: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run. cpu_s: by the names of ``Load.pids``. A gap is between two chunks with text of one request."""

    wall_s: float
    cpu_s: dict[str, float]
    tokens: int
    chunks: int
    ttft_p50_s: float
    ttft_p99_s: float
    gap_p99_s: float


class _Connection(asyncio.Protocol):
    """Asks, collects the answer, asks again until there are enough."""

    def __init__(
        self, request: bytes, next_answer: Callable[[], Answer | None], on_done: Callable[[], None]
    ) -> None:
        self._request = request
        self._next_answer = next_answer
        self._on_done = on_done
        self._pieces: list[tuple[float, bytes]] = []
        self._tail = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._socket = transport.get_extra_info("socket")
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._pieces.append((time.monotonic(), data))
        # The frontend leaves Nagle's algorithm on: with a client that delays its acknowledgements, streams
        # pause for 40 ms. The kernel forgets this setting, so it is made again with every read.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self._tail = (self._tail + data)[-len(_END) :]
        if self._tail == _END:
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server may close between two answers only; in the middle of one, reading it will tell."""
        self._on_done()

    def _ask(self) -> None:
        answer = self._next_answer()
        if answer is None:
            self._transport.close()
            return
        self._pieces = answer.pieces
        self._tail = b""
        self._transport.write(self._request)


async def run_load(load: Load) -> Result:
    """Ask, wait for every answer, then decode. Raises AnswerFlawed, TimeoutError."""
    loop = asyncio.get_running_loop()
    answers: list[Answer] = []
    done = asyncio.Semaphore(0)

    def next_answer() -> Answer | None:
        if len(answers) == load.requests:
            return None
        answers.append(Answer(time.monotonic()))
        return answers[-1]

    request = request_of(load.model, load.tokens)
    cpu_before = {name: cpu_s(pid) for name, pid in load.pids.items()}
    started_s = time.monotonic()
    async with asyncio.timeout(_GIVE_UP_S):
        for _ in range(load.concurrency):
            await loop.create_connection(
                lambda: _Connection(request, next_answer, done.release), "127.0.0.1", load.port
            )
        for _ in range(load.concurrency):
            await done.acquire()
    wall_s = time.monotonic() - started_s
    used_s = {name: cpu_s(pid) - cpu_before[name] for name, pid in load.pids.items()}
    return _summary(load, answers, wall_s, used_s)


def request_of(model: str, tokens: int) -> bytes:
    """A streaming request, ready for the socket."""
    wanted = {"model": model, "prompt": _PROMPT, "max_tokens": tokens, "stream": True}
    body = json.dumps(wanted).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _summary(load: Load, answers: list[Answer], wall_s: float, used_s: dict[str, float]) -> Result:
    timelines = [read_answer(answer, load.tokens) for answer in answers]
    ttfts_s = [timeline.ttft_s for timeline in timelines]
    gaps_s = [gap_s for timeline in timelines for gap_s in timeline.gaps_s]
    return Result(
        wall_s=wall_s,
        cpu_s=used_s,
        tokens=load.tokens * len(answers),
        chunks=sum(timeline.chunks for timeline in timelines),
        ttft_p50_s=statistics.median(ttfts_s),
        ttft_p99_s=percentile(ttfts_s, 0.99),
        gap_p99_s=percentile(gaps_s, 0.99),
    )


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; 0 without any."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(run_load(Load(**json.loads(sys.argv[1])))))))
