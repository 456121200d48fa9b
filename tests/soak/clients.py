"""Clients that come at a steady pace: most read to the end, some hang up, some stop reading first.

What a client leaves unread for some seconds the kernel and the frontend take: the worker never hears of it
but that the client left. So one client at a time, beside those, reads nothing until its worker is stalled.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import aiohttp

from tests.e2e.request_lines import trace_header
from tests.faults.load import Answer, Kind, body_of
from tests.faults.stalling import DEEP_TOKENS, stall

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

# What a client that stalls waits before it leaves: beyond the worker's own patience with it.
STALL_S = 4.0
_PATIENCE_S = 120.0
# One that stalls the worker: so many choices, each token a chunk of its own, fill what lies between in 45 s.
_DEEP_S = 90.0
_DEEP_CHOICES = 16


class Manner(StrEnum):
    """What a client does with its answer."""

    READS = "reads"
    LEAVES = "leaves"
    STALLS = "stalls"


class View(StrEnum):
    """What a client saw, or did. The last three are failures, whatever the worker says."""

    EXACT = "exact"
    ERROR = "error"
    LEFT = "left"
    STALLED = "stalled"
    STALLED_LONG = "stalled long"
    WRONG = "wrong tokens"
    SILENT = "silent end"
    HUNG = "no end"


@dataclass(frozen=True, slots=True)
class Told:
    """One request, when it is over. detail: of an error, or of what is wrong."""

    number: int
    kind: Kind
    view: View
    detail: str = ""


class Clients:
    """All of them, in one loop. on_told: called for each one's end."""

    def __init__(self, port: int, model: str, rng: Random, on_told: Callable[[Told], None]) -> None:
        self._port = port
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._model = model
        self._rng = rng
        self._on_told = on_told
        self._numbers = 0

    async def run(self, seconds: float, rate: float) -> None:
        """``rate`` new ones a second, evenly; returns when the last has ended."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            asyncio.TaskGroup() as all_of,
        ):
            began_s = time.monotonic()
            all_of.create_task(self._stall_long(began_s + seconds))
            while (elapsed_s := time.monotonic() - began_s) < seconds:
                await asyncio.sleep(max(0.0, self._numbers / rate - elapsed_s))
                self._numbers += 1
                all_of.create_task(self._client(session, self._numbers))

    async def _stall_long(self, ends_s: float) -> None:
        """One after another, as long as there is time for a whole one."""
        answer = Answer(Kind.TWO_CHOICES, max_tokens=DEEP_TOKENS, seed=None)
        body = body_of(answer, self._model, {"n": _DEEP_CHOICES})
        while time.monotonic() + _DEEP_S <= ends_s:
            self._numbers += 1
            number = self._numbers
            with await asyncio.to_thread(stall, self._port, body, trace_header(number)):
                await asyncio.sleep(_DEEP_S)
            self._on_told(Told(number, answer.kind, View.STALLED_LONG))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        kind = self._rng.choices((Kind.PLAIN, Kind.TWO_CHOICES, Kind.UNARY), (60, 15, 25))[0]
        manner = self._rng.choices(tuple(Manner), (85, 10, 5))[0]
        if manner is Manner.STALLS and kind is Kind.UNARY:
            # One answer in one piece: nobody can stop reading in the middle of it.
            kind = Kind.PLAIN
        answer = Answer(kind, max_tokens=self._rng.randint(5, 120), seed=None)
        if manner is Manner.STALLS:
            # Still under way when its client is tired of it.
            answer.max_tokens = 1_000
        stops_after = self._rng.randint(0, 20)
        try:
            await self._ask(session, number, answer, manner, stops_after)
        except TimeoutError:
            answer.failure = f"nothing for {_PATIENCE_S:g} s"
        except (aiohttp.ClientError, OSError) as exc:
            answer.failure = f"{type(exc).__name__}: {exc}"
            answer.ended_s = time.monotonic()
        self._on_told(_told(number, answer, manner))

    async def _ask(
        self, session: aiohttp.ClientSession, number: int, answer: Answer, manner: Manner, stops_after: int
    ) -> None:
        """Read it, all or some of it. Whoever leaves a unary request does so without having read anything."""
        is_early = manner is not Manner.READS
        leaves_s = stops_after * 0.02 if is_early and answer.kind is Kind.UNARY else None
        try:
            async with asyncio.timeout(leaves_s):
                response = await session.post(
                    self._url, json=body_of(answer, self._model), headers=trace_header(number)
                )
        except TimeoutError:
            if leaves_s is None:
                raise
            answer.ended_s = time.monotonic()
            return
        async with response:
            answer.status = response.status
            async for piece in response.content.iter_any():
                answer.add(piece)
                if is_early and answer.events_seen > stops_after:
                    if manner is Manner.STALLS:
                        await asyncio.sleep(STALL_S)
                    response.close()
                    break
        answer.ended_s = time.monotonic()


def _told(number: int, answer: Answer, manner: Manner) -> Told:
    view, detail = _view(answer, manner)
    return Told(number, answer.kind, view, detail)


def _view(answer: Answer, manner: Manner) -> tuple[View, str]:
    if answer.is_hung:
        return View.HUNG, str(answer.failure)
    if answer.error is not None:
        return View.ERROR, answer.error
    if not answer.is_exact:
        return View.WRONG, str(answer)
    if manner is not Manner.READS:
        return (View.STALLED if manner is Manner.STALLS else View.LEFT), ""
    if answer.is_silent:
        return View.SILENT, str(answer)
    return (View.EXACT, "") if answer.is_complete else (View.WRONG, str(answer))
