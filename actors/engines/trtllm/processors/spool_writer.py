"""The engine's side of the spool: one process writes about one request."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence

from actors.engines.trtllm.processors.spool_pages import BLOCK_BYTES, FILE_BYTES, PAGE_BYTES, Page


class SpoolWriter:
    """Only the engine's thread calls it, which must not hear of a full disk or a folder that is gone.

    The driver makes the file and takes it away. It is opened for every page, so that a request that the
    engine forgets leaves nothing open.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0
        # Where our block begins, once we have one.
        self._at: int | None = None

    def write(
        self, rows: Sequence[tuple[int, float]], failure: str | None, *, is_interrupted: bool = False
    ) -> bool:
        """All that there is to say so far, as `Page` has it. Whether it was written; never raises."""
        try:
            page = Page(self._number, tuple(rows), failure, is_interrupted).encode()
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except (OSError, ValueError):
            return False
        try:
            return self._write(file, page)
        except OSError:
            return False
        finally:
            os.close(file)

    def _write(self, file: int, page: bytes) -> bool:
        if self._at is None:
            return self._claim(file, page)
        is_whole = os.pwrite(file, page, self._at + self._number % 2 * PAGE_BYTES) == PAGE_BYTES
        # A page that is not whole is written again: the one before it must not be touched.
        self._number += is_whole
        return is_whole

    def _claim(self, file: int, page: bytes) -> bool:
        """Take the block behind those of the other ranks, which write to the same file."""
        # Gone with the descriptor. A rank that does not get it now asks again for its next token.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A block that was not finished for want of space is left alone.
        at = -(-os.fstat(file).st_size // BLOCK_BYTES) * BLOCK_BYTES
        block = page.ljust(BLOCK_BYTES, b"\0")
        if at + BLOCK_BYTES > FILE_BYTES or os.pwrite(file, block, at) != BLOCK_BYTES:
            return False
        self._at = at
        self._number += 1
        return True
