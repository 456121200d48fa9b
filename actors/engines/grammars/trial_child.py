"""One process that tries constraints, from the side of the worker."""

from __future__ import annotations

import os
import resource
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from actors.engines.grammars.limits import TRIAL_CPU_S, TRIAL_MEMORY_BYTES, TRIAL_STACK_BYTES
from actors.engines.grammars.plain import as_object, write_json
from actors.engines.grammars.vocabulary import Vocabulary
from protocols.strict_json import read_json

# To import, and to read a tokenizer of some MB: 0.6 s on a quiet core.
_START_S = 60.0
# What glibc gives a thread where the limit is "unlimited".
_UNLIMITED_STACK_BYTES = 2 * 1024 * 1024
_ANSWER_BYTES = 64 * 1024
_MODULE = "actors.engines.grammars.trial"
# What a program needs to find its libraries and nothing that it could tell.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
# One arena: a second one would take 128 MiB of address space. One thread: it has one thing to do.
_SETTINGS = {
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "PYTHONUTF8": "1",
}


@dataclass(frozen=True, slots=True)
class Court:
    """What tries constraints in the process.

    judge: ``module:function``; it is given the vocabulary and returns a `trial.Judge`. cpu_s: what one
    constraint may take, in CPU seconds.
    """

    judge: str
    cpu_s: float = TRIAL_CPU_S


class TrialFailed(Exception):
    """The process died, or took too long, at the constraint that it was given."""


class NoTrial(Exception):
    """The process was gone, or never came up, before it looked at the constraint."""


class TrialChild:
    """Starts the process. Raises OSError, or NoTrial when it does not come up.

    Any thread; `try_out` takes one constraint at a time.
    """

    def __init__(self, vocabulary: Vocabulary, court: Court) -> None:
        # Pipes only, and a session of its own: a signal for the worker's group is not for it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            close_fds=True,
            start_new_session=True,
            env=_environment(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()
        self._unread = b""
        os.set_blocking(self._stdin.fileno(), False)
        try:
            self._introduce(vocabulary, court)
        except BaseException:
            self.kill()
            self.wait()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def try_out(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Its verdict. Raises TrialFailed and NoTrial; the process is of no use after either."""
        with self._lock:
            if self._stdin.closed:
                raise NoTrial("it has ended")
            until_s = time.monotonic() + limit_s
            try:
                self._send(request, until_s)
                self._receive(until_s)
            except (OSError, EOFError) as exc:
                raise NoTrial("it has ended") from exc
            try:
                verdict = as_object(self._receive(until_s))
            except (OSError, EOFError) as exc:
                raise TrialFailed from exc
            if verdict is None:
                raise TrialFailed
            return verdict

    def kill(self) -> None:
        """Nothing in it is worth keeping. Returns at once."""
        self._process.kill()

    def wait(self) -> int:
        """Until it has ended: its exit code, or minus the signal. Leaves no zombie and no descriptor."""
        code = self._process.wait()
        with self._lock:
            self._stdin.close()
            self._stdout.close()
        return code

    def _introduce(self, vocabulary: Vocabulary, court: Court) -> None:
        until_s = time.monotonic() + _START_S
        setup = {
            "vocabulary": vocabulary.as_plain(),
            "stack_bytes": _stack_bytes(),
            "memory_bytes": TRIAL_MEMORY_BYTES,
            "judge": court.judge,
            "cpu_s": court.cpu_s,
        }
        try:
            self._send(setup, until_s)
            self._receive(until_s)
        except (OSError, EOFError) as exc:
            raise NoTrial("it did not come up") from exc

    def _send(self, message: dict[str, Any], until_s: float) -> None:
        left = memoryview(write_json(message).encode() + b"\n")
        while left:
            _await(self._stdin.fileno(), select.POLLOUT, until_s)
            left = left[os.write(self._stdin.fileno(), left) :]

    def _receive(self, until_s: float) -> Any:
        """The next line. Raises EOFError, and TimeoutError, which is an OSError."""
        while b"\n" not in self._unread:
            _await(self._stdout.fileno(), select.POLLIN, until_s)
            piece = os.read(self._stdout.fileno(), _ANSWER_BYTES)
            if not piece or len(self._unread) > _ANSWER_BYTES:
                raise EOFError
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return read_json(line)


def _await(descriptor: int, event: int, until_s: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, until_s - time.monotonic()) * 1e3):
        raise TimeoutError


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    # Also the packages that this process found in its own ways.
    return {**kept, **_SETTINGS, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _stack_bytes() -> int:
    """At most half of what a thread of Python's has in this process, and less than one of llguidance's."""
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    ours = _UNLIMITED_STACK_BYTES if soft == resource.RLIM_INFINITY else soft
    return min(TRIAL_STACK_BYTES, ours // 2 // 4096 * 4096)
