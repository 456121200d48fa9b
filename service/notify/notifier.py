"""Who writes to the service manager: one thread, which everybody else tells what has happened.

The loop may stand still, the main thread may be busy with a download, and a signal may interrupt either of
them between any two instructions. So whoever has something to say puts it into a queue and goes on; the
thread alone knows the stage, and sends.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager, suppress
from functools import partial

from service.exit_codes import ExitCode
from service.notify import complaints
from service.notify.correspondence import EVERY_S, Correspondence, datagram
from service.notify.datagrams import Datagrams
from service.notify.events import Ended, Event, Failed, StopAsked
from service.notify.motion import Motion
from service.notify.stages import plain
from service.notify.supervision import Supervision, take_supervision
from service.stopping import StopSignals

# Between two attempts at a socket that was full or gone.
RETRY_S = 0.25
# How long the end of the process waits for its last words to be taken.
LAST_WORDS_S = 0.5

# Errors of these packages speak in our own words.
_OUR_ROOMS = frozenset({"actors", "protocols", "service"})


class Notifier:
    """Tells a service manager about this worker. Every method: any thread, signal handlers too; never blocks.

    Without a manager it has no thread, and forgets what it is told.
    """

    def __init__(self, supervision: Supervision | None = None) -> None:
        self._supervision = supervision or Supervision()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._has_complained = False
        for text in self._supervision.refused:
            complaints.refused(text)
        if self._supervision.address is not None:
            self._thread = threading.Thread(target=self._serve, name="notifier", daemon=True)
            self._thread.start()

    @property
    def is_on(self) -> bool:
        """Whether anybody listens."""
        return self._thread is not None

    @property
    def watchdog_s(self) -> float | None:
        """Within how many seconds a sign of life of the event loop is due; None: none is."""
        return self._supervision.watchdog_s

    def tell(self, event: Event) -> None:
        """Something has happened."""
        if self._thread is not None:
            self._events.put(event)

    def last_word(self, why: str) -> None:
        """The process is ended right after this, whatever waits in the queue."""
        datagrams = Datagrams(self._supervision.address)
        datagrams.send(datagram({"STATUS": plain(f"failed: {why}"), "STOPPING": "1"}))
        datagrams.close()

    def close(self, within_s: float = LAST_WORDS_S) -> None:
        """Say what is still to be said; waits that long and no longer. Not for signal handlers."""
        if self._thread is not None:
            self._events.put(None)
            self._thread.join(within_s)

    def _serve(self) -> None:
        datagrams = Datagrams(self._supervision.address)
        try:
            self._correspond(Correspondence(datagrams, Motion().has_moved))
        finally:
            datagrams.close()

    def _correspond(self, letters: Correspondence) -> None:
        """Until it is closed and all is said, or nobody takes it."""
        # The first time is asked for at once: a manager may have little patience.
        asked_s, until_s = time.monotonic() - EVERY_S, math.inf
        while (now_s := time.monotonic()) < until_s:
            self._guard(letters.send)
            if until_s < math.inf and letters.is_up_to_date:
                return
            if now_s - asked_s >= EVERY_S:
                self._guard(partial(letters.ask_for_time, now_s, now_s - asked_s))
                asked_s = now_s
            try:
                event = self._events.get(timeout=EVERY_S if letters.is_up_to_date else RETRY_S)
            except queue.Empty:
                continue
            if event is None:
                until_s = min(until_s, time.monotonic() + LAST_WORDS_S)
            else:
                self._guard(partial(letters.hear, event, time.monotonic()))

    def _guard(self, step: Callable[[], None]) -> None:
        """A fault of ours must not silence the signs of life: the manager would end a worker that is well."""
        try:
            step()
        except Exception as exc:
            if not self._has_complained:
                self._has_complained = True
                # The log itself may be what is broken.
                with suppress(Exception):
                    complaints.failed(exc)


@contextmanager
def open_notifier(environ: MutableMapping[str, str], signals: StopSignals) -> Generator[Notifier]:
    """A notifier for as long as the worker lives; takes the manager's variables out of ``environ``.

    Hears every signal. Whatever ends the body ends the notifier, and is passed on.
    """
    notifier = Notifier(take_supervision(environ))
    signals.listen(lambda count: notifier.tell(StopAsked(count, signals.first_s)))
    try:
        yield notifier
    except BaseException as exc:
        # SystemExit: our handler of signals, before there is anything that could be lost.
        if not isinstance(exc, SystemExit):
            notifier.tell(Failed(why_of(exc)))
        notifier.tell(Ended(_code_of(exc)))
        raise
    finally:
        notifier.close()


def why_of(problem: BaseException | str) -> str:
    """In a few words: our own texts as they are, their first line; of other errors no more than the type.

    What a library says of itself may quote anything.
    """
    is_ours = isinstance(problem, str) or type(problem).__module__.partition(".")[0] in _OUR_ROOMS
    lines = str(problem).splitlines() if is_ours else []
    return lines[0] if lines else type(problem).__name__


def _code_of(exc: BaseException) -> ExitCode | None:
    """The one that is going to be the process's, if the error itself says so."""
    code: object = exc.code if isinstance(exc, SystemExit) else getattr(exc, "exit_code", None)
    return next((known for known in ExitCode if known == code), None)
