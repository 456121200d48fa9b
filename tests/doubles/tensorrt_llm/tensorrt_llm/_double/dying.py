"""The end of the engine's process, by its own hand or by a trap's, and what it says until then."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from multiprocessing.connection import Connection

from tensorrt_llm._double.script import Script

# Long enough for what was said last to be read.
_LAST_WORDS_S = 0.05


class Dying:
    """Event loop only. results: where everything that is said goes."""

    def __init__(self, script: Script, results: Connection) -> None:
        self._script = script
        self._results = results
        self._steps = 0

    def say(self, message: object) -> None:
        """Blocks while the caller's process does not read, as a full socket would."""
        try:
            self._results.send_bytes(pickle.dumps(message))
        except OSError:
            # Nobody is there any more.
            os._exit(0)

    def before_step(self) -> asyncio.Future[None] | None:
        """Count a step. What is returned is never done: the engine is stuck."""
        self._steps += 1
        if self._script.dies_at_step is not None and self._steps >= self._script.dies_at_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._script.hangs_at_step is not None and self._steps >= self._script.hangs_at_step:
            return asyncio.get_running_loop().create_future()
        return None

    def begin(self) -> None:
        """The engine has loaded."""
        if self._script.dies_after_s is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(self._script.dies_after_s, os.kill, os.getpid(), signal.SIGKILL)

    @property
    def is_stuck(self) -> bool:
        """Whether it will not step again."""
        return self._script.hangs_at_step is not None and self._steps >= self._script.hangs_at_step

    def die_soon(self) -> None:
        """By an error of the device, after what was said."""
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, os._exit, 1)
