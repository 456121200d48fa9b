"""Calls into the engine's process that wait for an answer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future

from tensorrt_llm._double.wire import Answer, Call


class RPCError(Exception):
    """A call failed over there, or nobody is there. Not derived from RuntimeError, as in the library."""


class RpcClient:
    """Any thread. send: puts a message on its way."""

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[object]] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def future(self, method: str, *args: object, **kwargs: object) -> Future[object]:
        """Send the call; what it returns, or an RPCError, comes later."""
        answer: Future[object] = Future()
        call = Call(next(self._ids), method, args, kwargs)
        with self._lock:
            if self._is_closed:
                raise RPCError(f"{method}: the RPC client is closed")
            self._waiting[call.id] = answer
        self._send(call)
        return answer

    def call(self, method: str, *args: object, **kwargs: object) -> object:
        """Block for the answer; there is no time limit. Raises RPCError."""
        return self.future(method, *args, **kwargs).result()

    def on_answer(self, answer: Answer) -> None:
        """The dispatch thread."""
        with self._lock:
            waiting = self._waiting.pop(answer.id, None)
        if waiting is None:
            return
        if answer.error is None:
            waiting.set_result(answer.value)
        else:
            waiting.set_exception(RPCError(answer.error))

    def close(self) -> None:
        """Nobody will answer any more. Idempotent."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set_exception(RPCError("the RPC server is gone"))
