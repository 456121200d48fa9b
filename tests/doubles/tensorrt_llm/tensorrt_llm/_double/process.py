"""The engine's process as its caller has it: two pipes, a thread for each, and what happens at its end."""

from __future__ import annotations

import multiprocessing
import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection, wait

from tensorrt_llm._double.wire import Quit, Ready, Settings, StartFailed

# How often a start looks whether somebody has left an error in the background.
_LOOK_S = 0.2


class EngineProcess:
    """A child that is spawned, so it imports the main module again. Constructed, then started, by one thread.

    exited: done when the child has ended, with its exit code or, unless it was told to leave, an exception.
    """

    def __init__(self, settings: Settings) -> None:
        context = multiprocessing.get_context("spawn")
        commands_out, self._commands = context.Pipe(duplex=False)
        self._results, results_in = context.Pipe(duplex=False)
        from tensorrt_llm._double.child import main

        self._child = context.Process(
            target=main, args=(settings, commands_out, results_in), name="tensorrt-llm-worker", daemon=True
        )
        self.exited: Future[int] = Future()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_leaving = False
        self._child.start()
        # Only the child holds these ends from now on, so that its death is an end of file.
        commands_out.close()
        results_in.close()

    @property
    def pid(self) -> int:
        """Of the child."""
        assert self._child.pid is not None
        return self._child.pid

    def wait_ready(self, look: Callable[[], None]) -> Ready:
        """Block until it has loaded. Raises RuntimeError when it did not; whatever ``look`` raises, too."""
        while not wait([self._results, self._child.sentinel], timeout=_LOOK_S):
            look()
        message = _receive(self._results)
        if message is None:
            self._note_exit()
            raise RuntimeError("Executor worker died during initialization")
        if isinstance(message, StartFailed):
            self._child.join()
            self._note_exit()
            raise RuntimeError("Executor worker returned error") from RuntimeError(message.text)
        assert isinstance(message, Ready)
        return message

    def begin(self, on_message: Callable[[object], None], on_end: Callable[[], None]) -> None:
        """Start the two threads. Both callbacks run in the reading one, ``on_end`` last."""
        for target, args in ((self._read, (on_message, on_end)), (self._write, ())):
            threading.Thread(target=target, args=args, name=f"proxy{target.__name__}", daemon=True).start()

    def send(self, message: object) -> None:
        """Any thread, and never blocks. Pickles here and now: raises what pickling raises."""
        self._outgoing.put(pickle.dumps(message))

    def leave(self) -> None:
        """Tell it to go, once. What was sent before is read first."""
        if not self._is_leaving:
            self._is_leaving = True
            self.send(Quit())
            self._outgoing.put(None)

    def kill(self) -> None:
        """End it at once, as the system would."""
        self._child.kill()

    def _read(self, on_message: Callable[[object], None], on_end: Callable[[], None]) -> None:
        while (message := _receive(self._results)) is not None:
            on_message(message)
            # A thread that waits must not keep the last result, or its executor, alive.
            del message
        self._child.join()
        self._note_exit()
        self._outgoing.put(None)
        on_end()

    def _write(self) -> None:
        while (data := self._outgoing.get()) is not None:
            try:
                self._commands.send_bytes(data)
            except OSError:
                # It has ended; the reading thread says so.
                return

    def _note_exit(self) -> None:
        self._child.join()
        code = self._child.exitcode
        if self.exited.done():
            return
        if self._is_leaving:
            self.exited.set_result(code or 0)
        else:
            self.exited.set_exception(RuntimeError(f"MPI worker exited unexpectedly with code {code}"))


def _receive(pipe: Connection) -> object | None:
    """The next message, or None at the end."""
    try:
        message: object = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError):
        return None
    return message
