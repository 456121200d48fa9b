"""Load beside a fault: many requests at once against a frontend, each answer read to its end and checked.

The hostile worker's engines say 1000, 1001, ... and go on from the last id of the prompt when that is one
of theirs. So an answer that was moved to another worker reads as if nothing had happened, and a token
that was lost or said twice on the way shows.

The load runs in a loop and a thread of its own: a test may block while it goes on.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice, pairwise, repeat
from types import TracebackType
from typing import Any, TypeVar

import aiohttp

from actors.engines.synthetic import FIRST_TOKEN_ID
from tests.e2e.request_lines import trace_header
from tests.e2e.waiting import wait_until
from tests.e2e.word_model import VOCAB_SIZE, word_of

T = TypeVar("T")

# The framework's own sockets refuse some of 256 requests that begin in one instant.
WAVE = 32
_DATA = b"data: "
_IDS = VOCAB_SIZE - FIRST_TOKEN_ID


class Kind(StrEnum):
    """What is asked for. A frontend can move plain and unary requests, and neither of the others."""

    PLAIN = "plain"
    TWO_CHOICES = "n=2"
    GUIDED = "guided"
    UNARY = "unary"

    @property
    def is_movable(self) -> bool:
        """Whether a frontend continues it on another worker."""
        return self in (Kind.PLAIN, Kind.UNARY)


_EXTRA: dict[Kind, dict[str, Any]] = {
    Kind.PLAIN: {},
    Kind.TWO_CHOICES: {"n": 2, "temperature": 0.8},
    Kind.GUIDED: {"guided_regex": "(w[0-9]+ ?)*"},
    Kind.UNARY: {"stream": False},
}


@dataclass(slots=True)
class Answer:
    """One request and what came back. Times are monotonic seconds.

    number: by which it is found in a worker's log (`tests.e2e.request_lines`); None: not at all.
    """

    kind: Kind
    max_tokens: int
    seed: int | None
    number: int | None = None
    asked_s: float = 0.0
    ended_s: float | None = None
    status: int | None = None
    failure: str | None = None
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    events_seen: int = 0
    _read: _Reading | None = None

    def add(self, piece: bytes) -> None:
        """Some bytes came."""
        self.pieces.append((time.monotonic(), piece))
        self.events_seen += piece.count(_DATA)

    @property
    def reading(self) -> _Reading:
        """Everything that came, decoded once, when it has ended."""
        if self._read is None:
            self._read = _read(self)
        return self._read

    @property
    def error(self) -> str | None:
        """What the client was told went wrong, or what broke its connection."""
        return self.failure or self.reading.error

    @property
    def is_hung(self) -> bool:
        """Whether it had not ended when the patience of `Load.finish` did."""
        return self.ended_s is None

    @property
    def is_error(self) -> bool:
        """Whether it ended with an error that the client can see."""
        return not self.is_hung and self.error is not None

    @property
    def is_silent(self) -> bool:
        """The worst end: neither a finish reason nor an error."""
        return not self.is_hung and self.error is None and not self.reading.reasons

    @property
    def is_exact(self) -> bool:
        """Whether every token that came is the one that was due: none lost, none twice."""
        return all(
            words == [word_of(FIRST_TOKEN_ID + position % _IDS) for position in range(len(words))]
            for words in self.words
        )

    @property
    def is_complete(self) -> bool:
        """Whether all tokens of all choices came, exactly, and the end with its reason."""
        choices = 2 if self.kind is Kind.TWO_CHOICES else 1
        return (
            not self.is_hung
            and self.error is None
            and "length" in self.reading.reasons
            and [len(words) for words in self.words] == [self.max_tokens] * choices
            and self.is_exact
        )

    @property
    def words(self) -> list[list[str]]:
        """The words of each choice that said something."""
        return [text.split() for _, text in sorted(self.reading.texts.items())]

    @property
    def reasons(self) -> list[str]:
        """Finish reasons, in the order in which they came."""
        return self.reading.reasons

    @property
    def text_s(self) -> list[float]:
        """When each piece with text came."""
        return self.reading.text_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between two pieces with text."""
        return [later_s - sooner_s for sooner_s, later_s in pairwise(self.text_s)]

    def __str__(self) -> str:
        words = [f"{len(words)} words" for words in self.words]
        name = f"{self.number} {self.kind} seed={self.seed}"
        return f"{name} HTTP {self.status} {words} {self.reasons} {self.error!r}"


def body_of(answer: Answer, model: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The body of a chat request for this answer. options: more fields, or others."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": "w5"}],
        "max_tokens": answer.max_tokens,
        "stream": True,
        **_EXTRA[answer.kind],
        **(options or {}),
    }


@dataclass(slots=True)
class _Reading:
    texts: dict[int, str] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    text_s: list[float] = field(default_factory=list)
    error: str | None = None


class Load:
    """``with Load(port, model) as load: load.start(Kind.PLAIN, 64, max_tokens=200)``. Any one thread.

    numbers: one for each request, to find it again at a worker that is `TRACED`.
    """

    def __init__(
        self,
        port: int,
        model: str,
        headers: Mapping[str, str] | None = None,
        numbers: Iterator[int | None] | None = None,
    ) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._model = model
        self._headers = headers
        self._numbers = repeat(None) if numbers is None else numbers
        self._answers: list[Answer] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load", daemon=True)
        self._session: aiohttp.ClientSession
        self._door: asyncio.Semaphore

    def __enter__(self) -> Load:
        self._thread.start()
        self._in_loop(self._open())
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._in_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def start(self, kind: Kind, count: int = 1, *, max_tokens: int = 100, **options: Any) -> list[Answer]:
        """Begin requests, at most `WAVE` at once. options: of the body; ``seed`` chooses a fault."""
        answers = [
            Answer(kind, max_tokens, options.get("seed"), number) for number in islice(self._numbers, count)
        ]
        self._answers += answers
        self._in_loop(self._begin(answers, options))
        return answers

    def wait_tokens(self, count: int, of: list[Answer] | None = None, timeout_s: float = 60.0) -> None:
        """Until that many pieces of every streamed answer have come, or it has ended."""
        answers = self._answers if of is None else of
        streamed = [answer for answer in answers if answer.kind is not Kind.UNARY]
        # The first event of an answer says who speaks, and has no text.
        self._wait(
            lambda: all(answer.events_seen > count or answer.ended_s is not None for answer in streamed),
            timeout_s,
        )

    def wait_ended(self, answers: list[Answer], timeout_s: float = 60.0) -> None:
        """Until these have ended."""
        self._wait(lambda: all(answer.ended_s is not None for answer in answers), timeout_s)

    def hang_up(self, answers: list[Answer]) -> None:
        """Their clients leave in the middle of it."""
        self._in_loop(self._cancel(answers))

    def finish(self, timeout_s: float = 60.0) -> list[Answer]:
        """All answers, in the order they were asked for. One that does not end in time stays ``is_hung``."""
        with suppress(AssertionError):
            self.wait_ended(self._answers, timeout_s)
        return self._answers

    def _wait(self, is_so: Any, timeout_s: float) -> None:
        wait_until(is_so, lambda: [str(answer) for answer in self._answers], timeout_s, every_s=0.005)

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._door = asyncio.Semaphore(WAVE)

    async def _close(self) -> None:
        await self._cancel(self._answers)
        await self._session.close()

    async def _begin(self, answers: list[Answer], options: dict[str, Any]) -> None:
        for answer in answers:
            task = asyncio.create_task(self._ask(answer, options))
            self._tasks[id(answer)] = task

    async def _cancel(self, answers: list[Answer]) -> None:
        tasks = [self._tasks[id(answer)] for answer in answers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, answer: Answer, options: dict[str, Any]) -> None:
        body = body_of(answer, self._model, options)
        headers = None if answer.number is None else trace_header(answer.number)
        try:
            async with self._door:
                answer.asked_s = time.monotonic()
                response = await self._session.post(self._url, json=body, headers=headers)
            async with response:
                answer.status = response.status
                async for piece in response.content.iter_any():
                    answer.add(piece)
        except (aiohttp.ClientError, OSError) as exc:
            answer.failure = f"{type(exc).__name__}: {exc}"
        except asyncio.CancelledError:
            answer.failure = "the client left"
        answer.ended_s = time.monotonic()


def _read(answer: Answer) -> _Reading:
    """Decode what came: events of a stream with the time of their first byte, or one body."""
    if answer.status != 200 or answer.kind is Kind.UNARY:
        return _read_body(answer)
    reading = _Reading()
    line, at_s = b"", 0.0
    for piece_s, piece in answer.pieces:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            _read_line(line + part, at_s if line else piece_s, reading)
            line = b""
        if rest and not line:
            at_s = piece_s
        line += rest
    return reading


def _read_line(line: bytes, at_s: float, reading: _Reading) -> None:
    if line.startswith(b"event: error"):
        reading.error = reading.error or "an error event"
    if not line.startswith(_DATA) or line == b"data: [DONE]":
        return
    event = json.loads(line.removeprefix(_DATA))
    if "error" in event:
        reading.error = str(event["error"])
    for choice in event.get("choices", ()):
        _read_choice(choice, choice.get("delta", {}), reading)
        if choice.get("delta", {}).get("content"):
            reading.text_s.append(at_s)


def _read_body(answer: Answer) -> _Reading:
    reading = _Reading()
    text = b"".join(piece for _, piece in answer.pieces).decode(errors="replace")
    if answer.status != 200:
        reading.error = None if answer.status is None else f"HTTP {answer.status}: {text[:200]}"
        return reading
    try:
        body = json.loads(text)
    except ValueError:
        return reading
    for choice in body.get("choices", ()):
        _read_choice(choice, choice["message"], reading)
    return reading


def _read_choice(choice: dict[str, Any], said: dict[str, Any], reading: _Reading) -> None:
    if text := said.get("content"):
        index = choice["index"]
        reading.texts[index] = reading.texts.get(index, "") + text
    if reason := choice.get("finish_reason"):
        reading.reasons.append(reason)
