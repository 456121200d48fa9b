"""The process in which every constraint is compiled first: ``python -m actors.engines.grammars.trial``.

A compiler recurses, computes and allocates as a caller's text has it, and can be neither interrupted nor
asked what it will cost. Here it may overflow its stack, or run into the limits of this process: the worker
(`trial_child`) starts another one. JSON lines in both directions. In, first: ``vocabulary``, ``judge`` and
``cpu_s`` (see `trial_child.Court`), ``stack_bytes`` and ``memory_bytes``; then requests with ``kind`` and
``constraint``, one at a time. Out: "ready", and for each request "begun" and then a verdict.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from actors.engines.grammars.vocabulary import Vocabulary, vocabulary_of
from protocols.errors import InvalidRequest, shorten
from protocols.spec import Guided, GuidedKind

_PR_SET_DUMPABLE = 4
_FIELD_CHARACTERS = 300

Judge = Callable[[Guided], object]
"""Compiles a constraint and tries it. What it returns takes the memory that will be kept."""


def main() -> None:
    """Until standard input ends, which it does with the worker, whatever that died of."""
    out = _take_output()
    _stand_back()
    lines = sys.stdin.buffer
    setup = json.loads(lines.readline())
    judge = _judge(setup["judge"], vocabulary_of(setup["vocabulary"]))
    # A stack smaller than any in the worker: what does not overflow this one overflows none there.
    threading.stack_size(setup["stack_bytes"])
    del setup["vocabulary"]
    _limit_memory(setup["memory_bytes"])
    _say(out, "ready")
    for line in lines:
        _limit_time(setup["cpu_s"])
        _say(out, "begun")
        # This thread goes on reading, so that it notices the worker's end while the other one computes.
        threading.Thread(target=_try, args=(line, judge, out), daemon=True).start()
    # Not `sys.exit`: it would wait for what is being computed.
    os._exit(0)


def _judge(name: str, vocabulary: Vocabulary) -> Judge:
    """The worker says which one: never a caller."""
    module, _, factory = name.partition(":")
    judge: Judge = getattr(import_module(module), factory)(vocabulary)
    return judge


def _take_output() -> int:
    """The descriptor for answers. Whatever else writes to standard output or error is not heard."""
    out = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return out


def _stand_back() -> None:
    """Neither the terminal nor a drain ends it, only its worker; it is the first to go when memory is short.

    It leaves no core dump: there would be callers' texts in it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _limit_memory(more_bytes: int) -> None:
    """Of address space, from what is taken now."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + more_bytes, hard))


def _limit_time(cpu_s: float) -> None:
    """For the next constraint, by a signal that ends the process: also when nobody gives it a turn here.

    The system counts whole seconds.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(time.process_time() + cpu_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _try(line: bytes, judge: Judge, out: int) -> None:
    """The thread for one constraint."""
    try:
        request = json.loads(line)
        guided = Guided(kind=GuidedKind(request["kind"]), constraint=request["constraint"])
        verdict = _verdict(guided, judge)
    except MemoryError:
        os._exit(1)
    except BaseException as exc:
        # Also a panic of llguidance's, which is no Exception.
        verdict = {"failed": type(exc).__name__}
    _say(out, verdict)


def _verdict(guided: Guided, judge: Judge) -> dict[str, Any]:
    """``cpu_s`` and ``kept_bytes`` of a grammar, or ``refused``: what an InvalidRequest is made of."""
    before, started_s = _used_bytes(), time.thread_time()
    try:
        compiled = judge(guided)
    except InvalidRequest as exc:
        return {"refused": [exc.field[:_FIELD_CHARACTERS], shorten(exc.value), exc.allowed]}
    verdict = {"cpu_s": time.thread_time() - started_s, "kept_bytes": _used_bytes() - before}
    # Its own end is part of the trial: to take it apart may need as much stack as to build it.
    del compiled
    return verdict


_MALLINFO = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _Mallinfo(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


def _used_bytes() -> int:
    """What is allocated; where the C library does not say, what is resident, which is less exact."""
    library = ctypes.CDLL(None)
    try:
        library.mallinfo2.restype = _Mallinfo
        info: Any = library.mallinfo2()
        return int(info.uordblks + info.hblkhd)
    except AttributeError:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _say(out: int, answer: object) -> None:
    os.write(out, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
