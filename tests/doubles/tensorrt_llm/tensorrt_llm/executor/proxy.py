"""The executor whose engine runs in a process of its own. What it says arrives in the dispatch thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import cast

from tensorrt_llm._double.calls import RpcClient, RPCError
from tensorrt_llm._double.iterations import Row
from tensorrt_llm._double.old_shapes import dead_error
from tensorrt_llm._double.process import EngineProcess
from tensorrt_llm._double.wire import Answer, CancellingRequest, GenerationRequest, Response, Settings
from tensorrt_llm.executor.executor import GenerationExecutor
from tensorrt_llm.executor.result import GenerationResult
from tensorrt_llm.executor.utils import ErrorResponse, RequestError

__all__ = ["GenerationExecutorProxy"]

# These reach all ranks by themselves; any other method reaches one process only.
_FOR_ALL_RANKS = frozenset({"sleep", "wakeup"})
# The monitor's backstop: an error that nobody else has noticed is noticed after so long.
_MONITOR_S = 5.0


class GenerationExecutorProxy(GenerationExecutor):
    """Blocks in the constructor until the engine has loaded. Raises RuntimeError when it cannot."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._script = settings.script
        self.model_world_size = settings.world_size
        self._results: dict[int, GenerationResult] = {}
        self._engine_dead = False
        self._submits = 0
        self._shutdown_event = threading.Event()
        self.rpc_client: RpcClient | None = None
        self.workers_started = True
        self._process = EngineProcess(settings)
        self.mpi_futures: list[Future[int]] = [self._process.exited]
        self.ready = self._process.wait_ready(self._handle_background_error)
        self.rpc_client = RpcClient(self._process.send)
        self._process.begin(_weakly(self._on_message), _weakly(self._on_end))
        monitor = threading.Thread(
            target=_monitor,
            args=(weakref.ref(self), self._shutdown_event),
            name="proxy_error_monitor",
            daemon=True,
        )
        monitor.start()

    def submit(self, request: GenerationRequest) -> GenerationResult:
        """Raises EngineDeadError once the death is known, and what waits in the background."""
        self._submits += 1
        if self._submits == self._script.dead_at_submit:
            self._process.kill()
            self._mark_engine_dead(RuntimeError("the double was told to die at this submit"))
        if self._is_dead():
            raise dead_error(self._script, self._fatal_error)
        self._expect_rows()
        self._handle_background_error()
        request.id = self._get_next_client_id()
        result = GenerationResult(request, self._handle_background_error, self, request.disaggregated_params)
        self._results[request.id] = result
        if self._is_dead():
            self._results.pop(request.id, None)
            raise dead_error(self._script, self._fatal_error)
        self._process.send(request)
        self._handle_background_error()
        self._leave_error(request)
        return result

    def abort_request(self, request_id: int) -> None:
        self._process.send(CancellingRequest(request_id))

    def check_health(self) -> bool:
        """Also looks whether the process has ended."""
        return super().check_health() and not self._check_mpi_futures()

    def pre_shutdown(self) -> None:
        """Abort everything and tell the process to leave; does not wait. Idempotent."""
        if not self.workers_started or self.doing_shutdown:
            return
        self.doing_shutdown = True
        self._shutdown_event.set()
        for result in list(self._results.values()):
            result.abort()
        self._process.leave()

    def shutdown(self) -> None:
        """Waits for the process for as long as that takes: one that is stuck keeps its caller for ever."""
        if not self.workers_started:
            return
        self.pre_shutdown()
        # Waits, and does not mind how it ended.
        self._process.exited.exception()
        time.sleep(self._script.shutdown_s)
        if self.rpc_client is not None:
            self.rpc_client.close()
            self.rpc_client = None
        self.workers_started = False
        if self._script.shutdown_error is not None:
            self._error_queue.put(self._script.shutdown_error)
        self._handle_background_error()

    def get_stats(self, timeout: float) -> list[Row]:
        """One call that waits over there. Raises RPCError; [] without a client."""
        if self.rpc_client is None:
            return []
        time.sleep(self._script.stats_hang_s)
        if self._script.stats_error is not None:
            raise RPCError(self._script.stats_error)
        return cast("list[Row]", self.rpc_client.call("fetch_stats", timeout))

    def get_kv_events(self, timeout: float) -> list[Row]:
        """As `get_stats`, but every failure of the call is only logged, and is [] here."""
        if self.rpc_client is None:
            return []
        time.sleep(self._script.events_hang_s)
        if self._script.events_error is not None:
            raise RuntimeError(self._script.events_error)
        try:
            return cast("list[Row]", self.rpc_client.call("fetch_kv_cache_events", timeout))
        except RPCError:
            return []

    def get_kv_cache_capacity(self) -> Row:
        return {} if self.rpc_client is None else cast("Row", self.rpc_client.call("kv_cache_capacity"))

    def get_disaggregated_params(self) -> Row:
        return {} if self.rpc_client is None else cast("Row", self.rpc_client.call("disaggregated_params"))

    def get_data_transceiver_state(self) -> bytes:
        """What a prefill gives away is named by each request; here there is nothing more."""
        return b""

    def collective_rpc(
        self,
        method: str,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
        non_block: bool = False,
        unique_reply_rank: int | None = None,
        target_ranks: int | list[int] | None = None,
    ) -> list[object]:
        """Run a method of the first rank's process. Raises NotImplementedError, RPCError."""
        if self.rpc_client is None:
            raise RuntimeError("the RPC client is not there yet, or no more")
        if self.model_world_size > 1 and method not in _FOR_ALL_RANKS:
            raise NotImplementedError(f"collective_rpc({method!r}) does not support a world size above 1")
        if unique_reply_rank is not None or target_ranks is not None:
            raise NotImplementedError("unique_reply_rank and target_ranks are not supported")
        answer = self.rpc_client.future(method, *args, **(kwargs or {}))
        return [answer if non_block else answer.result()]

    def _is_dead(self) -> bool:
        """May change at any time: other threads find it out."""
        return self._engine_dead or self._fatal_error is not None

    def _leave_error(self, request: GenerationRequest) -> None:
        """A trap: the next caller, whoever that is, gets an error that is not its own."""
        trap = request.trap
        if trap is not None and trap.leaves_error is not None:
            error = trap.leaves_error
            self._error_queue.put(RuntimeError(error) if trap.is_fatal else RequestError(error))

    def _on_fatal_error(self) -> None:
        self.pre_shutdown()

    def _set_fatal_error(self, error: BaseException) -> None:
        super()._set_fatal_error(error)
        self._mark_engine_dead(error)

    def _mark_engine_dead(self, error: BaseException) -> None:
        """For good; whatever is pending gets its error once."""
        if not self._engine_dead:
            self._engine_dead = True
            for result in list(self._results.values()):
                result.queue.put(dead_error(self._script, error))

    def _check_mpi_futures(self) -> bool:
        """Whether a process has ended; then that is the fatal error."""
        for future in self.mpi_futures:
            if future.done():
                self._set_fatal_error(future.exception() or RuntimeError("MPI worker exited unexpectedly"))
                self.pre_shutdown()
                return True
        return False

    def _on_message(self, message: object) -> None:
        """The dispatch thread. A response for a request that has ended is dropped."""
        if isinstance(message, Answer):
            if self.rpc_client is not None:
                self.rpc_client.on_answer(message)
            return
        assert isinstance(message, Response | ErrorResponse)
        result = self._results.get(message.client_id)
        if result is None:
            return
        result.queue.put(message)
        if isinstance(message, ErrorResponse) or message.result.is_final:
            self._results.pop(message.client_id, None)

    def _on_end(self) -> None:
        """The dispatch thread, last: the process has ended."""
        error = self._process.exited.exception()
        if self.rpc_client is not None:
            self.rpc_client.close()
        if error is not None and not self.doing_shutdown:
            self._error_queue.put(error)
        self._mark_engine_dead(error or RuntimeError("the engine was shut down"))


def _weakly(method: Callable[..., None]) -> Callable[..., None]:
    """Call it as long as its object is there: no thread keeps an executor alive."""
    reference = weakref.WeakMethod(method)

    def call(*args: object) -> None:
        found = reference()
        if found is not None:
            found(*args)

    return call


def _monitor(reference: weakref.ref[GenerationExecutorProxy], ended: threading.Event) -> None:
    """A thread: notices what no caller has noticed."""
    while not ended.wait(_MONITOR_S):
        proxy = reference()
        if proxy is None or proxy.is_shutdown() or not proxy.check_health():
            return
        del proxy
