"""The notifier's thread on real sockets: everybody may tell it something, and nobody waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from protocols.errors import InvalidRequest
from protocols.telemetry import WorkerState
from service.exit_codes import ExitCode
from service.models import ModelInvalid
from service.notify import Notifier, complaints, open_notifier, why_of
from service.notify.events import Ended, Failed, Listed, LoopTurned, Planned, StateChanged
from service.notify.notifier import RETRY_S
from service.notify.supervision import Supervision
from service.stopping import STOP_SIGNALS, StopSignals
from tests.service.notify_manager import PATIENCE_S, Manager

ROOT = Path(__file__).resolve().parents[2]
NOT_THERE = "model 'nowhere': it is not there; Give a folder."
UP = (
    Planned("m", "torch", 140.0),
    StateChanged(WorkerState.LOADING),
    StateChanged(WorkerState.SERVING),
    Listed(),
)


def tell(notifier: Notifier, *events: object) -> None:
    for event in events:
        notifier.tell(event)  # type: ignore[arg-type] # any event


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_life_is_told_in_its_order(tmp_path: Path, is_abstract: bool) -> None:
    """From the first word to the last one, which has been sent when `close` comes back."""
    with Manager(None if is_abstract else tmp_path) as manager:
        notifier = Notifier(Supervision(address=manager.address, watchdog_s=30.0))
        tell(notifier, *UP, LoopTurned(), Ended(ExitCode.PLANNED))
        notifier.close()
        told = manager.read_all()
        assert manager.statuses == [
            "starting",
            "loading m with torch",
            "loaded, not in discovery yet",
            "serving m with torch",
            "ended (code 0, as planned)",
        ]
        assert {"WATCHDOG": "1"} in told
        assert told[:2] == [{"STATUS": "starting"}, {"EXTEND_TIMEOUT_USEC": "120000000"}]
        notifier.close()


def test_without_a_manager_there_is_no_thread() -> None:
    """And nothing is kept of what is told."""
    before = threading.active_count()
    notifier = Notifier()
    tell(notifier, *UP)
    notifier.last_word("nobody hears it")
    notifier.close()
    assert threading.active_count() == before
    assert not notifier.is_on


def test_ready_gets_through_to_a_manager_that_was_busy(tmp_path: Path) -> None:
    """Its socket is full when it is told; READY comes when it has read what lay there."""
    with Manager(tmp_path) as manager:
        notifier = Notifier(Supervision(address=manager.address))
        manager.read_until("STATUS", "starting")
        manager.fill()
        tell(notifier, *UP)
        assert manager.read_until("READY")["STATUS"] == "serving m with torch"
        notifier.close()


def test_ready_gets_through_to_a_manager_that_was_gone(tmp_path: Path) -> None:
    """One that is started anew listens at the same address."""
    with Manager(tmp_path) as manager:
        notifier = Notifier(Supervision(address=manager.address))
        manager.read_until("STATUS", "starting")
        manager.go()
        tell(notifier, *UP)
        manager.come_back()
        assert manager.read_until("READY")["STATUS"] == "serving m with torch"
        notifier.close()


@pytest.mark.parametrize("is_full", [False, True])
def test_nobody_waits_for_a_manager_that_takes_nothing(tmp_path: Path, is_full: bool) -> None:
    """Gone, or full for ever: whoever tells goes on, and so does whoever ends the process."""
    with Manager(tmp_path) as manager:
        manager.fill() if is_full else manager.go()
        notifier = Notifier(Supervision(address=manager.address))
        for _ in range(1000):
            tell(notifier, *UP, LoopTurned())
        notifier.last_word("hung")
        tell(notifier, Failed("why"))
        # Bounded: comes back although nothing could be said.
        notifier.close()


def test_who_closes_waits_until_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a manager that is busy just then, as long as it may take: the last words tell how it ended."""
    monkeypatch.setattr("service.notify.notifier.LAST_WORDS_S", PATIENCE_S)
    with Manager(tmp_path) as manager:
        notifier = Notifier(Supervision(address=manager.address))
        manager.read_until("STATUS", "starting")
        manager.fill()
        tell(notifier, *UP, Ended(ExitCode.PLANNED))
        closer = threading.Thread(target=notifier.close, args=(PATIENCE_S,))
        closer.start()
        # Nobody has taken anything yet: it tries again, and again.
        closer.join(2 * RETRY_S)
        assert closer.is_alive()
        manager.read_until("STATUS", "ended (code 0, as planned)")
        closer.join(PATIENCE_S)
        assert not closer.is_alive()


def test_a_fault_of_ours_does_not_silence_the_signs_of_life(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be told is named once; what comes after it is told, and the worker is not ended for it."""
    with Manager(tmp_path) as manager:
        notifier = Notifier(Supervision(address=manager.address, watchdog_s=30.0))
        tell(notifier, "no event", object(), LoopTurned(), *UP)
        manager.read_until("WATCHDOG")
        assert manager.read_until("READY")
        notifier.close()
    assert caplog.text.count("notify.failed error=AssertionError") == 1


@pytest.mark.parametrize("what", ["not_taken", "failed"])
def test_a_log_that_is_broken_does_not_silence_the_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The complaint itself raises: what comes after it is told all the same."""
    complained = threading.Event()

    def broken(_about: object) -> None:
        complained.set()
        raise ValueError("the log is closed")

    monkeypatch.setattr(complaints, what, broken)
    with Manager(tmp_path) as manager:
        if what == "not_taken":
            manager.go()
        notifier = Notifier(Supervision(address=manager.address, watchdog_s=30.0))
        tell(notifier, "no event")
        assert complained.wait(PATIENCE_S)
        if what == "not_taken":
            manager.come_back()
        tell(notifier, *UP, LoopTurned())
        manager.read_until("WATCHDOG")
        notifier.close()


class Moving:
    """A start that always gets on."""

    def has_moved(self, _within_s: float) -> bool:
        return True


def test_a_quiet_start_asks_for_time_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told for as long as a large model loads: the thread looks at it by itself."""
    monkeypatch.setattr("service.notify.notifier.EVERY_S", 0.02)
    monkeypatch.setattr("service.notify.notifier.Motion", Moving)
    with Manager(tmp_path) as manager:
        notifier = Notifier(Supervision(address=manager.address))
        for _ in range(5):
            assert manager.read_until("EXTEND_TIMEOUT_USEC") == {"EXTEND_TIMEOUT_USEC": "120000000"}
        notifier.close()


def test_a_last_word_overtakes_what_waits(tmp_path: Path) -> None:
    """The process is about to be ended by one of its guards."""
    with Manager(tmp_path) as manager:
        notifier = Notifier(Supervision(address=manager.address))
        notifier.last_word("the event loop has stood still for 30 s\nREADY=1")
        told = manager.read_until("STOPPING")
        assert told == {"STATUS": "failed: the event loop has stood still for 30 s READY=1", "STOPPING": "1"}
        notifier.close()


GUARDED = """
import os, time
from service.guard import ExitGuard
from service.notify import open_notifier
from service.stopping import StopSignals
signals = StopSignals()
with open_notifier(os.environ, signals) as notifier:
    signals.install()
    ExitGuard(signals, 0.2, notifier.last_word)
    print("armed", flush=True)
    while True: time.sleep(1)
"""


def test_a_process_that_its_guard_ends_says_so(tmp_path: Path) -> None:
    """An operator sees why it was ended by force; nobody else could have said it."""
    with Manager(tmp_path) as manager:
        environ = {**os.environ, "NOTIFY_SOCKET": manager.name}
        words = [sys.executable, "-c", GUARDED]
        with subprocess.Popen(words, cwd=ROOT, env=environ, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"armed\n"
            child.terminate()
            assert child.wait(PATIENCE_S) == ExitCode.FORCED
        manager.read_all()
        assert manager.statuses[-1] == "failed: still not stopped 0.2 s after the signal"


def test_a_variable_that_is_not_followed_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """And the worker runs as without a manager."""
    environ = {"NOTIFY_SOCKET": "vsock:2:9999"}
    with open_notifier(environ, StopSignals()) as notifier:
        assert not notifier.is_on
    assert environ == {}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("notify.refused text='NOTIFY_SOCKET: neither an absolute path")


@pytest.fixture
def signals() -> StopSignals:
    """Handlers as the console script's, taken away afterwards."""
    return StopSignals()


def test_a_signal_in_any_thread_is_told_with_its_time(tmp_path: Path, signals: StopSignals) -> None:
    """Real signals: the handler puts it into the queue, whatever it has interrupted."""
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    try:
        with (
            Manager(tmp_path) as manager,
            open_notifier({"NOTIFY_SOCKET": manager.name}, signals) as notifier,
        ):
            tell(notifier, *UP)
            manager.read_until("READY")
            signals.install()
            os.kill(os.getpid(), signal.SIGTERM)
            told = manager.read_until("STOPPING")
            assert told["STATUS"].startswith("stopping")
            asked = manager.read_until("EXTEND_TIMEOUT_USEC")
            assert 0 < int(asked["EXTEND_TIMEOUT_USEC"]) <= 140e6
            os.kill(os.getpid(), signal.SIGINT)
            manager.read_until("STATUS", "stopping: asked twice")
    finally:
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def test_a_signal_while_nothing_can_be_lost_is_told_too(tmp_path: Path, signals: StopSignals) -> None:
    """The handler ends the process from where it is; what it says is said before."""
    signals.exit_at_once_with(ExitCode.PLANNED)
    with Manager(tmp_path) as manager:
        with (
            pytest.raises(SystemExit, match="0"),
            open_notifier({"NOTIFY_SOCKET": manager.name}, signals),
        ):
            signals._on_signal(signal.SIGTERM, None)
        manager.read_all()
        assert [told for told in manager.told if "STOPPING" in told]
        assert manager.statuses[-1] == "ended (code 0, as planned)"
    signals.leave_it_to_the_framework()


def test_an_error_is_told_with_its_reason_and_goes_on(tmp_path: Path, signals: StopSignals) -> None:
    """A configuration that is refused, say: no READY, and the line that is on stderr too."""
    with Manager(tmp_path) as manager:
        notified = open_notifier({"NOTIFY_SOCKET": manager.name}, signals)
        with pytest.raises(ModelInvalid), notified:
            raise ModelInvalid("nowhere", "it is not there", "Give a folder.")
        manager.read_all()
        assert manager.statuses == [
            "starting",
            f"failed: {NOT_THERE}",
            f"failed (code 2, the configuration is refused): {NOT_THERE}",
        ]
        assert not [told for told in manager.told if "READY" in told]


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (InvalidRequest("n", "two", "a number"), str(InvalidRequest("n", "two", "a number"))),
        (ModelInvalid("m", "a\nb", "c"), "model 'm': a"),
        (RuntimeError("a library quotes a prompt"), "RuntimeError"),
        (ValueError(), "ValueError"),
        ("in our own words", "in our own words"),
        ("", "str"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_reason_is_in_our_words_or_a_type_alone(problem: BaseException | str, words: str) -> None:
    """What a library says of itself may quote anything."""
    assert why_of(problem) == words


def test_an_exit_code_that_is_none_of_ours_is_no_error(tmp_path: Path, signals: StopSignals) -> None:
    """SystemExit may carry anything."""
    for code in ("text", 3, None):
        with (
            Manager(tmp_path) as manager,
            pytest.raises(SystemExit),
            open_notifier({"NOTIFY_SOCKET": manager.name}, signals),
        ):
            raise SystemExit(code)
