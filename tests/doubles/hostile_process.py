"""What may happen to the process that TensorRT-LLM's double has started for its engine."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextlib import suppress

import psutil

# How the double starts it; it is the only one of the worker's children that was started so.
_SPAWNED = "multiprocessing.spawn"
_LOOK_S = 0.01


class OwnProcess:
    """Implements `tests.doubles.hostile_engine.EngineProcess` for the engine of this very process."""

    def block(self, seconds: float) -> None:
        """Stopped by a signal, so that neither its loop nor its threads go on, and let go by another."""
        process = engine_child(os.getpid())
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, process.send_signal, (signal.SIGCONT,)).start()

    async def die_now(self) -> None:
        """Killed as by a system that has run out of memory."""
        process = engine_child(os.getpid())
        assert process is not None
        process.kill()
        await asyncio.to_thread(_wait_gone, process)


def _wait_gone(process: psutil.Process) -> None:
    """Without asking for its exit code, which can be had once: by the library."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(_LOOK_S)


def engine_child(worker: int) -> psutil.Process | None:
    """The engine's process of the worker with this pid, when there is one."""
    for child in psutil.Process(worker).children(recursive=True):
        # Others may be ending.
        with suppress(psutil.Error):
            if any(_SPAWNED in word for word in child.cmdline()):
                return child
    return None
