"""The framework's side of the bridge: calls a facade as the Rust worker does.

The event loop runs in a thread of its own; the driver lives in the thread of the test, which has
none. Every call and every step of a generator becomes a task of its own on the loop; a generator
is made, stepped and dropped from threads without a loop, so that no asyncio hook ever sees it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from tests.doubles.contexts import FakeClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from service.engine import ActorEngine
    from tests.doubles.contexts import Client

T = TypeVar("T")

# How long a test waits for what it was promised before it fails. No promise is this slow.
PATIENCE_S = 15.0
# How often `BridgeDriver.until` looks.
LOOK_S = 0.002


class LoopThread:
    """An event loop in a thread of its own; leaving it ends all its tasks and the thread."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = new_loop()
        # What the loop was told about exceptions that nobody caught; a test ends with none.
        self.complaints: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _loop, context: self.complaints.append(context))
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(_cancel_the_others(), self.loop).result(PATIENCE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()

    def begin(self, work: Awaitable[T]) -> Future[T]:
        """A task of its own for this."""
        return asyncio.run_coroutine_threadsafe(_await(work), self.loop)

    def run(self, work: Awaitable[T]) -> T:
        """The same, and wait for it here."""
        return self.begin(work).result(PATIENCE_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call something that belongs to the loop."""

        async def on_loop() -> T:
            return function()

        return self.run(on_loop())

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


class BridgeDriver:
    """One framework worker around one facade."""

    def __init__(self, facade: ActorEngine, loop: LoopThread) -> None:
        self.facade = facade
        self.loop = loop
        self.calls: list[BridgeCall] = []

    def start(self, worker_id: int = 7) -> Any:
        """``start()`` in a task of its own; returns the EngineConfig or raises."""
        return self.loop.run(self.facade.start(worker_id))

    def begin_start(self) -> Future[Any]:
        """The same, without waiting for it. Cancelling the future cancels the task."""
        return self.loop.begin(self.facade.start(7))

    def cleanup(self) -> None:
        """``cleanup()`` in a task of its own."""
        self.loop.run(self.facade.cleanup())

    def begin_cleanup(self) -> Future[None]:
        """The same, without waiting for it."""
        return self.loop.begin(self.facade.cleanup())

    def generate(self, request: Any, client: Client | None = None) -> BridgeCall:
        """One request, called by keyword as the framework does. Nothing is stepped yet."""
        call = BridgeCall(self, request, client or FakeClient())
        self.calls.append(call)
        return call

    def ask(self, request: Any, client: Client | None = None) -> BridgeCall:
        """One request whose first step is under way."""
        call = self.generate(request, client)
        call.begin_step()
        return call

    def abort(self, client: Client) -> None:
        """``abort()`` in a task of its own, with a context object of its own."""
        self.loop.run(self.facade.abort(client.context()))

    def leave(self, client: Client) -> None:
        """What the framework does when a client disconnects: the flag first, then ``abort()``."""
        client.leave()
        self.abort(client)

    def until(self, is_true: Callable[[], Any]) -> None:
        """Wait for something on the loop's side to come true; fails the test when it does not."""
        gives_up_s = time.monotonic() + PATIENCE_S
        while not self.loop.call(is_true):
            assert time.monotonic() < gives_up_s, "what the test waits for never came"
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Every client still there disconnects, and whatever the test holds is dropped."""
        for call in self.calls:
            if call.is_stepping:
                self.leave(call.client)

        def forget_all() -> None:
            for call in self.calls:
                call.forget()

        in_thread(forget_all)


class BridgeCall:
    """One call of ``generate()``: a generator without a home, and what it has yielded so far."""

    def __init__(self, driver: BridgeDriver, request: Any, client: Client) -> None:
        self.client = client
        self.chunks: list[Mapping[str, Any]] = []
        self.error: BaseException | None = None
        self.is_exhausted = False
        self._loop = driver.loop
        self._pending: Future[Mapping[str, Any] | None] | None = None
        self._generator: AsyncGenerator[Any, None] | None = driver.facade.generate(
            request=request, context=client.context()
        )

    def begin_step(self) -> None:
        """Ask for the next chunk: ``__anext__`` is called here, awaited in a new task of the loop."""
        assert self._pending is None, "a step is under way"
        assert self._generator is not None, "the generator was dropped"
        self._pending = self._loop.begin(_or_none(self._generator.__anext__()))

    def finish_step(self) -> Mapping[str, Any] | None:
        """The chunk of the step under way; None at the end and after an error, which is kept."""
        assert self._pending is not None, "no step is under way"
        pending, self._pending = self._pending, None
        try:
            chunk = pending.result(PATIENCE_S)
        except TimeoutError:
            raise AssertionError("a step never came back") from None
        except Exception as exc:
            self.error = exc
            return None
        if chunk is None:
            self.is_exhausted = True
        else:
            self.chunks.append(chunk)
        return chunk

    def step(self) -> Mapping[str, Any] | None:
        """The next chunk, waiting for it."""
        if self._pending is None:
            self.begin_step()
        return self.finish_step()

    def read_to_end(self) -> BridgeCall:
        """Every chunk, and one ``__anext__`` more, as the adapter may ask for."""
        while self.step() is not None:
            pass
        return self

    @property
    def is_stepping(self) -> bool:
        """Whether a step is under way that has nothing to tell yet."""
        return self._pending is not None and not self._pending.done()

    @property
    def is_step_done(self) -> bool:
        """Whether the step under way has something to tell."""
        return self._pending is not None and self._pending.done()

    def drop(self) -> None:
        """The client has gone: the last reference dies in a foreign thread, by way of its collector.

        A step under way goes on, as it does in the framework: its task holds the generator.
        """

        def collect() -> None:
            self.forget()
            gc.collect()

        in_thread(collect)

    def forget(self) -> None:
        """Let go of the generator, here."""
        self._generator = None

    def aclose(self) -> None:
        """The polite end."""
        assert self._generator is not None
        self._loop.run(self._generator.aclose())

    def throw_cancelled(self) -> None:
        """What a loop that ends does to a generator, from a task that never stepped it."""
        assert self._generator is not None
        self._loop.run(_throw(self._generator, asyncio.CancelledError()))

    @property
    def tokens(self) -> list[int]:
        """Everything that was delivered, all choices in the order of their chunks."""
        return [token for chunk in self.chunks for token in chunk["token_ids"]]

    @property
    def finish_reasons(self) -> list[str]:
        """Every finish reason that was seen."""
        return [chunk["finish_reason"] for chunk in self.chunks if chunk.get("finish_reason") is not None]

    @property
    def terminals(self) -> int:
        """Last words seen: finish reasons and errors. Promised: one."""
        return len(self.finish_reasons) + (self.error is not None)


def in_thread(work: Callable[[], Any]) -> None:
    """Do it in a thread that Python did not know before."""
    thread = threading.Thread(target=work, name="foreign")
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "a foreign thread was blocked"


async def _await(work: Awaitable[T]) -> T:
    return await work


async def _or_none(step: Awaitable[T]) -> T | None:
    try:
        return await step
    except StopAsyncIteration:
        return None


async def _throw(generator: AsyncGenerator[Any, None], error: BaseException) -> None:
    try:
        await generator.athrow(error)
    except (asyncio.CancelledError, StopAsyncIteration):
        return


async def _cancel_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
