"""What lies in a file of the spool: blocks of two pages, written in turn, of which one is always whole.

The engine's process writes a page in one go, but a reader may come in the middle of it. So a page carries
a checksum, and the page before it stays as it is until the next one has been written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

PAGE_BYTES = 1024
BLOCK_BYTES = 2 * PAGE_BYTES
# Processes that may write about one request: the ranks of a tensor-parallel engine.
MOST_BLOCKS = 64
FILE_BYTES = MOST_BLOCKS * BLOCK_BYTES
# Logits processors of one request; a request can ask for far fewer.
MOST_ROWS = 32

_CHECKSUM = struct.Struct("<IH")
_FACTS = struct.Struct("<QBB")
_ROW = struct.Struct("<Qd")
_LONGEST_BODY = PAGE_BYTES - _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Page:
    """All that one process has to say about a request so far.

    number: counts the pages of a block, from 0. rows: calls and seconds of each logits processor.
    failure: why the request cannot go on; no content in it. is_interrupted: it took too long.
    """

    number: int
    rows: tuple[tuple[int, float], ...] = ()
    failure: str | None = None
    is_interrupted: bool = False

    def encode(self) -> bytes:
        """As many bytes as a page has; a failure that is too long loses its end.

        Raises ValueError for too many rows.
        """
        if len(self.rows) > MOST_ROWS:
            raise ValueError(f"{len(self.rows)} rows do not fit on a page")
        body = _FACTS.pack(self.number, self.is_interrupted, len(self.rows))
        body += b"".join(_ROW.pack(*row) for row in self.rows)
        body += (self.failure or "").encode("utf-8", "replace")
        body = body[:_LONGEST_BODY]
        return (_CHECKSUM.pack(zlib.crc32(body), len(body)) + body).ljust(PAGE_BYTES, b"\0")


def decode(raw: bytes) -> Page | None:
    """None for what is no whole page. Never raises."""
    if len(raw) < _CHECKSUM.size + _FACTS.size:
        return None
    checksum, length = _CHECKSUM.unpack_from(raw)
    body = raw[_CHECKSUM.size : _CHECKSUM.size + length]
    if len(body) != length or length < _FACTS.size or zlib.crc32(body) != checksum:
        return None
    number, is_interrupted, count = _FACTS.unpack_from(body)
    end = _FACTS.size + count * _ROW.size
    if end > length:
        return None
    rows = tuple((calls, seconds) for calls, seconds in _ROW.iter_unpack(body[_FACTS.size : end]))
    return Page(number, rows, body[end:].decode("utf-8", "ignore") or None, bool(is_interrupted))


def newest(block: bytes) -> Page | None:
    """Of the two pages of a block the later one that is whole; None while there is none."""
    pages = [page for at in (0, PAGE_BYTES) if (page := decode(block[at : at + PAGE_BYTES])) is not None]
    return max(pages, key=lambda page: page.number, default=None)


def newest_of_each(content: bytes) -> Iterator[Page | None]:
    """One for each block of a file; what follows its last whole block is no block yet."""
    for at in range(0, min(len(content), FILE_BYTES) - BLOCK_BYTES + 1, BLOCK_BYTES):
        yield newest(content[at : at + BLOCK_BYTES])
