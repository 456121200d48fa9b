"""Building the ``LLM``: minutes in a thread, which nothing but its processes' end can stop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, cast

from actors.engines.trtllm.config import TrtllmConfig
from actors.engines.trtllm.library import Library, import_library
from actors.engines.trtllm.life.children import descendants, end_all, out_of_reach
from protocols.engine import EngineInfo
from protocols.errors import EngineStartError, ServiceError, StartFault, StartStopped

Progress = Callable[[str, float], None]
"""Called with the stage of the start and the fraction done, 0 to 1; the same again while a stage goes on."""

# How often is told that a stage goes on: a large model is loaded for many minutes.
STILL_S = 30.0

# How long its processes may take to end by themselves; most do not hear that they shall.
_LEAVE_S = 0.5
# How long the constructor may take to notice that they have ended.
_JOIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What there is to work with."""

    library: Library
    llm: Any
    info: EngineInfo


class Loading:
    """One attempt. progress: told of every stage."""

    def __init__(self, config: TrtllmConfig, progress: Progress | None) -> None:
        self._config = config
        self._progress = progress
        # Processes below this one before the library started any; those that it had when it was through.
        self._before: set[int] | None = None
        self._started: set[int] | None = None
        self._is_given_up = False
        self._stage = ("importing", 0.0)
        self._thread: threading.Thread | None = None
        # Also what nobody waited for any more.
        self.loaded: Loaded | None = None

    async def run(self) -> Loaded:
        """Loop. Raises EngineStartError; StartStopped after `give_up`."""
        ready: Future[Loaded] = Future()
        self._thread = threading.Thread(target=self._work, args=(ready,), name="trtllm-load", daemon=True)
        self._thread.start()
        waited = asyncio.wrap_future(ready)
        # Of a start that was cancelled nobody hears how it ended.
        waited.add_done_callback(_take_note)
        while not (await asyncio.wait({waited}, timeout=STILL_S))[0]:
            self._tell()
        return waited.result()

    @property
    def processes(self) -> set[int]:
        """What the library has started, and what that has; empty before it began."""
        if self._before is None:
            return set()
        started = descendants(os.getpid()) - self._before if self._started is None else self._started
        below = [descendants(pid) for pid in started]
        return (started.union(*below)) - {_trackers_pid()}

    def give_up(self) -> None:
        """Any thread, blocking: end what was started.

        The library's constructor then raises, or waits for ever and ends with the process.
        """
        self._is_given_up = True
        if self._thread is None:
            return
        end_all(self.processes, _LEAVE_S)
        self._thread.join(_JOIN_S)
        # Whatever it started while the first were ending.
        end_all(self.processes, _LEAVE_S)

    def _work(self, ready: Future[Loaded]) -> None:
        ready.set_running_or_notify_cancel()
        try:
            self.loaded = self._load()
        except BaseException as exc:
            # Also a panic of a library in another language.
            ready.set_exception(self._told(exc))
        else:
            ready.set_result(self.loaded)

    def _load(self) -> Loaded:
        self._checkpoint("importing", 0.0)
        library = import_library()
        self._checkpoint("loading", 0.2)
        self._before = descendants(os.getpid())
        with out_of_reach():
            llm = library.LLM(model=str(self._config.model_path), **self._config.keywords)
        self._started = descendants(os.getpid()) - self._before
        try:
            self._checkpoint("asking", 0.9)
            return Loaded(library, llm, info_of(llm, library, self._config))
        except BaseException:
            # What made the start fail is what is told, whatever happens here.
            with suppress(Exception):
                llm.shutdown()
            raise

    def _checkpoint(self, stage: str, fraction: float) -> None:
        if self._is_given_up:
            raise StartStopped("the engine was stopped while it was starting")
        self._stage = (stage, fraction)
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(*self._stage)

    def _told(self, exc: BaseException) -> BaseException:
        if self._is_given_up:
            return StartStopped("the engine was stopped while it was starting")
        if isinstance(exc, ServiceError):
            return exc
        return start_error(exc, self._config.model_path)


def _take_note(ended: asyncio.Future[Loaded]) -> None:
    if not ended.cancelled():
        ended.exception()


def info_of(llm: Any, library: Library, config: TrtllmConfig) -> EngineInfo:
    """Loading thread: what the engine says, and where it says nothing what it was told. Blocks."""
    # Release rc20 does not say it, nor may those beside it.
    ask = getattr(llm, "get_kv_cache_capacity", None)
    capacity = cast("dict[str, int]", (ask() if ask is not None else None) or {})

    def said(name: str, default: int) -> int:
        return int(getattr(llm.args, name, None) or default)

    batch, step_tokens = said("max_batch_size", config.batch), said("max_num_tokens", config.step_tokens)
    is_chunked = bool(config.arguments.get("enable_chunked_prefill"))
    ranks = config.ranks
    return EngineInfo(
        model=str(config.model_path),
        context_length=said("max_seq_len", config.context_length),
        max_num_seqs=batch * ranks,
        vocab_size=config.vocab_size,
        max_num_batched_tokens=step_tokens,
        max_prompt_tokens=None if is_chunked else step_tokens * config.prompt_shares,
        block_tokens=capacity.get("tokensPerBlock", config.block_tokens),
        total_blocks=capacity.get("maxNumBlocks"),
        data_parallel_size=ranks,
        bos_token_id=config.bos_token_id,
        description=f"TensorRT-LLM {library.version}, {_shape(config)}",
    )


def _trackers_pid() -> int | None:
    """Python's own process for what its processes share: it ends with this one, and listens to no signal."""
    return getattr(resource_tracker._resource_tracker, "_pid", None)  # pyright: ignore[reportPrivateUsage]


def _shape(config: TrtllmConfig) -> str:
    sizes = (("tensor", "tensor_parallel_size"), ("pipeline", "pipeline_parallel_size"))
    parts = [f"{word} parallel {config.arguments.get(name) or 1}" for word, name in sizes]
    if config.prompt_shares > 1:
        parts.append(f"context parallel {config.prompt_shares}")
    if config.ranks > 1:
        parts.append(f"{config.ranks} attention-DP ranks")
    return ", ".join(parts)


def start_error(exc: BaseException, model: Path) -> EngineStartError:
    """In one line: what the library said, where to look, and whose fault it is. model: its folder.

    It refuses arguments by ValueError and TypeError, pydantic's among them, before it starts anything. What
    happens in its processes comes as RuntimeError, whatever it was.
    """
    fault, hint = _blamed(exc, model)
    said = " ".join(str(exc).split()).rstrip(".")
    name = type(exc).__name__
    words = f"{name}: {said}" if said else name
    error = EngineStartError(f"TensorRT-LLM could not be loaded: {words}.", hint, fault)
    error.__cause__ = exc
    return error


def _blamed(exc: BaseException, model: Path) -> tuple[StartFault, str]:
    match exc:
        case ImportError():
            return (
                StartFault.CONFIGURATION,
                "Repair the installation of tensorrt-llm, or give --engine torch.",
            )
        case ValueError() | TypeError():
            arguments = "--extra-engine-args, --override-engine-args, --trtllm.*"
            return StartFault.CONFIGURATION, f"Check the engine arguments ({arguments})."
        case OSError() if _is_about_files(exc, model):
            return StartFault.UNAVAILABLE, "Look whether all files of the model are there and can be read."
        case _:
            return StartFault.ENGINE, "The log above has what its processes said."


def _is_about_files(exc: OSError, model: Path) -> bool:
    """A port that is taken, shared memory that is full, and a time that is over are no files of the model."""
    if isinstance(exc, FileNotFoundError):
        return True
    if isinstance(exc.filename, str):
        return Path(exc.filename).is_relative_to(model)
    # transformers raises a bare one, and its words name the folder.
    return type(exc) is OSError and exc.errno is None and str(model) in str(exc)
