"""What the demo shows: one answer, one request's way, one cancel, some figures, one drain."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from msgspec.json import decode
from rich.console import Console
from rich.markup import escape

from service.demo.client import Client, Piece
from service.demo.processes import DRAIN_S, Stack
from service.demo.waiting import StackFailed, wait_for_status
from service.inspection.story import Answer
from service.inspection.waterfall import render_story

QUESTION = "What is the capital of France?"
_LONG_QUESTION = "Tell me a long story about a lighthouse keeper and the sea."
# Long enough to be under way for some seconds on two cores, short enough for a demo.
_LONG_TOKENS = 96
_CANCEL_AFTER_PIECES = 8
_FIGURES = (
    "dynamo_actor_requests_total",
    "dynamo_actor_tokens_total",
    "dynamo_actor_aborts_total",
    "dynamo_actor_engine_steps_total",
)


@dataclass(slots=True)
class Tour:
    """The steps in their order; each prints what it saw and raises StackFailed when that was wrong."""

    stack: Stack
    frontend: Client
    system: Client
    model: str
    console: Console

    def answer(self) -> None:
        """The main thing: a real answer."""
        self._title("A question, answered by the model", QUESTION)
        asked_s = time.monotonic()
        first_s: float | None = None
        tokens = 0
        with self.frontend.ask(self.model, QUESTION, temperature=0, max_tokens=48) as pieces:
            self.console.print("  ", end="")
            for piece in pieces:
                if piece.text and first_s is None:
                    first_s = piece.at_s - asked_s
                self.console.print(f"[bold green]{escape(piece.text)}[/]", end="", soft_wrap=True)
                tokens = piece.usage["completion_tokens"] if piece.usage else tokens
        took_s = time.monotonic() - asked_s
        self.console.print()
        if first_s is None:
            raise StackFailed("the answer was empty")
        self._note(f"{tokens} tokens, the first after {first_s * 1000:.0f} ms, all in {took_s:.1f} s")

    def way(self) -> None:
        """The first request's way through the actors."""
        self._title("Its way through the worker", "its spans, named actor.…; ms from its arrival")
        status, body = self.system.post("/engine/control/trace", {"which": "last"})
        stories = decode(body, type=Answer).stories if status == 200 else []
        if not stories:
            raise StackFailed(f"the worker has no story of the request (HTTP {status})")
        for line in render_story(stories[0], width=min(96, self.console.width - 4)):
            self.console.print(f"  {line}", highlight=False, markup=False)

    def cancel(self) -> None:
        """A reader that hangs up in mid-answer: its slot is free at once."""
        self._title("A reader who hangs up", "another request, left in the middle of its answer")
        got = 0
        with self.frontend.ask(self.model, _LONG_QUESTION, temperature=0, max_tokens=2000) as pieces:
            for piece in pieces:
                got += 1 if piece.text else 0
                if got == _CANCEL_AFTER_PIECES:
                    break
        took_s = wait_for_status(self.system, lambda status: status["in_flight"] == 0, timeout_s=10)
        self._note(
            f"hung up after {got} pieces; its slot in the engine was free {took_s * 1000:.0f} ms later"
        )

    def figures(self) -> None:
        """A few lines of what Prometheus would scrape."""
        self._title("Some figures", f"http://127.0.0.1:{self.stack.system_port}/metrics")
        status, body = self.system.get("/metrics")
        if status != 200:
            raise StackFailed(f"/metrics answered HTTP {status}")
        shown = [_short(line) for line in body.splitlines() if line.startswith(_FIGURES)]
        for line in shown:
            if not line.endswith(" 0.0"):
                self.console.print(f"  {line}", highlight=False, markup=False)

    def drain(self) -> None:
        """SIGTERM with an answer under way: it arrives whole, then the worker goes."""
        self._title("A SIGTERM in mid-answer", f"a request for {_LONG_TOKENS} tokens, then the signal")
        reading = _Reading(self.frontend, self.model)
        reading.start()
        reading.wait_for_pieces(4)
        at_signal = reading.pieces
        self.stack.worker.ask_to_stop()
        signal_s = time.monotonic()
        self._note(f"SIGTERM sent after {at_signal} pieces")
        tokens, reason = reading.finish()
        if tokens != _LONG_TOKENS or reason != "length":
            raise StackFailed(f"the answer had {tokens} tokens of {_LONG_TOKENS}, reason {reason!r}")
        done_s = time.monotonic() - signal_s
        self._note(
            f"the answer went on to its own end: {tokens} tokens, reason {reason!r}, {done_s:.1f} s later"
        )
        code = self.stack.worker.wait(DRAIN_S)
        gone_s = time.monotonic() - signal_s
        self._note(f"the worker drained and ended with code {code}, {gone_s:.1f} s after the signal")
        if code != 0:
            raise StackFailed(f"the worker ended with code {code}")

    def _title(self, title: str, about: str) -> None:
        self.console.print(f"\n[bold cyan]{escape(title)}[/]  [dim]{escape(about)}[/]")

    def _note(self, text: str) -> None:
        self.console.print(f"  {text}", highlight=False, markup=False)


@dataclass(slots=True)
class _Reading:
    """A client in a thread of its own, so that somebody else can send a signal meanwhile."""

    frontend: Client
    model: str
    pieces: int = 0
    _last: Piece | None = None
    _tokens: int = 0
    _error: Exception | None = None
    _progress: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._read, name="demo-reader", daemon=True)
        self._thread.start()

    def wait_for_pieces(self, count: int) -> None:
        with self._progress:
            if not self._progress.wait_for(
                lambda: self.pieces >= count or self._error is not None, timeout=60
            ):
                raise StackFailed("no answer within 60 s")
        self._raise_if_failed()

    def finish(self) -> tuple[int, str | None]:
        """Completion tokens and finish reason of the whole answer."""
        if self._thread is not None:
            self._thread.join(DRAIN_S)
        self._raise_if_failed()
        return self._tokens, self._last.reason if self._last else None

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            raise StackFailed(f"the answer was lost: {self._error}")

    def _read(self) -> None:
        options = {"temperature": 0, "max_tokens": _LONG_TOKENS, "ignore_eos": True}
        try:
            with self.frontend.ask(self.model, _LONG_QUESTION, **options) as pieces:
                for piece in pieces:
                    self._note(piece)
        except Exception as exc:
            with self._progress:
                self._error = exc
                self._progress.notify_all()

    def _note(self, piece: Piece) -> None:
        with self._progress:
            self.pieces += 1 if piece.text else 0
            self._last = piece if piece.reason else self._last
            self._tokens = piece.usage["completion_tokens"] if piece.usage else self._tokens
            self._progress.notify_all()


def _short(line: str) -> str:
    """A sample without the labels that every sample of this worker has."""
    name, _, rest = line.partition("{")
    labels, _, value = rest.rpartition("} ")
    ours = [label for label in labels.split(",") if not label.startswith(("dynamo_", "worker_id", "model"))]
    return (
        f"{name}{{{','.join(ours)}}} {value}"
        if ours and rest
        else f"{name} {value or line.rpartition(' ')[2]}"
    )
