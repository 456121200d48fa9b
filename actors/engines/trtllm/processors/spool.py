"""What logits processors do in the engine's process, brought back to the driver: the driver's side.

TensorRT-LLM pickles a processor into another process and hears nothing of it again. So a file goes along
with every request that has processors: its failure and what it cost come back in it.
"""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from actors.engines.trtllm.processors.spool_folder import SpoolFolder, sweep
from actors.engines.trtllm.processors.spool_pages import FILE_BYTES, Page, newest_of_each
from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.errors import EngineStartError, StartFault
from protocols.steps import EngineId, ProcessorUse

# In memory where there is such a place: the event loop reads here, and no disk shall keep it waiting.
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - only a folder of our own is made there, readable by nobody else

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SpoolReport:
    """What is known of one request.

    failure: why it cannot go on, without content. uses: what its processors did since it was read last.
    is_heard: whether they were ever called; a request that got tokens without was not steered.
    """

    failure: str | None = None
    uses: tuple[ProcessorUse, ...] = ()
    is_heard: bool = False


@dataclass(slots=True)
class _Watched:
    """names: of its logits processors. told: the page that was reported last."""

    path: Path
    names: tuple[str, ...]
    told: Page | None = None
    failure: str | None = None
    is_heard: bool = False


class Spool:
    """A folder of this worker. Only the event loop calls it, and every call is a few short system calls.

    A worker that is killed leaves its folder behind. Nobody reads it: the next one takes it away.
    """

    def __init__(self, folder: SpoolFolder, on_bound: OnBound = ignore_bound) -> None:
        self._folder = folder
        self._on_bound = on_bound
        self._watched: dict[EngineId, _Watched] = {}
        self._numbers = itertools.count(1)

    @classmethod
    def make(cls, parents: Iterable[Path] | None = None, on_bound: OnBound = ignore_bound) -> Spool:
        """A new folder in the first of these that takes one. Raises EngineStartError where none does.

        Folders of killed workers go first, wherever one may be: memory that is full takes none.
        on_bound: told of a request whose processor took too long.
        """
        candidates = [_IN_MEMORY, Path(tempfile.gettempdir())] if parents is None else list(parents)
        swept = sum(map(sweep, dict.fromkeys(candidates)))
        if swept:
            _log.info(
                "folders of logits processors that killed workers had left behind: %d taken away", swept
            )
        for parent in candidates:
            try:
                return cls(SpoolFolder.make(parent), on_bound)
            except OSError:
                continue
        tried = " or ".join(str(parent) for parent in candidates)
        raise EngineStartError(
            f"No folder can be made in {tried} for what logits processors tell of themselves.",
            "Make one of them writable, or set TMPDIR.",
            StartFault.UNAVAILABLE,
        )

    @property
    def folder(self) -> Path:
        """Where the files lie."""
        return self._folder.path

    def open(self, engine_id: EngineId, names: Iterable[str]) -> str:
        """The file for one request, by its path; ``names``: of its processors. Raises OSError.

        No path comes twice: who still writes for a request that was closed writes to nobody.
        """
        path = self._folder.path / str(next(self._numbers))
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._watched[engine_id] = _Watched(path, tuple(names))
        return str(path)

    def read(self, engine_id: EngineId) -> SpoolReport:
        """What is new. A file that cannot be read says nothing new; nor does an id that is not open."""
        watched = self._watched.get(engine_id)
        if watched is None:
            return SpoolReport()
        pages = list(newest_of_each(_content(watched.path)))
        for page in pages:
            if page is not None:
                self._note_failure(watched, page)
                watched.is_heard = watched.is_heard or any(calls for calls, _ in page.rows)
        # All ranks of a tensor-parallel engine do the same work; it is one rank that counts.
        uses = _uses(watched, pages[0]) if pages and pages[0] is not None else ()
        return SpoolReport(watched.failure, uses, watched.is_heard)

    def _note_failure(self, watched: _Watched, page: Page) -> None:
        """The first one stays."""
        if watched.failure is None and page.failure is not None:
            watched.failure = page.failure
            if page.is_interrupted:
                self._on_bound(Bound.FOREIGN_TIME)

    def close(self, engine_id: EngineId) -> None:
        """Take the file away. What is still written about the request is lost. Idempotent."""
        watched = self._watched.pop(engine_id, None)
        if watched is not None:
            watched.path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Take all of it away. Idempotent; never raises."""
        self._watched.clear()
        self._folder.remove()


def _content(path: Path) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(file, FILE_BYTES, 0)
    except OSError:
        return b""
    finally:
        os.close(file)


def _uses(watched: _Watched, page: Page) -> tuple[ProcessorUse, ...]:
    """What is new on this page, which says all that there is so far."""
    told, nothing = watched.told, [(0, 0.0)] * len(page.rows)
    if told is not None and page.number <= told.number:
        return ()
    watched.told = page
    rows = zip(watched.names, page.rows, nothing if told is None else told.rows, strict=False)
    return tuple(
        ProcessorUse(name, calls - calls_before, seconds - seconds_before)
        for name, (calls, seconds), (calls_before, seconds_before) in rows
        if calls > calls_before
    )
