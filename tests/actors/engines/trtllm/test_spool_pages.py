"""The pages of the spool: whole or not there, whatever happened to the bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.trtllm.processors.spool_pages import (
    BLOCK_BYTES,
    FILE_BYTES,
    MOST_BLOCKS,
    MOST_ROWS,
    PAGE_BYTES,
    Page,
    decode,
    newest,
    newest_of_each,
)

NUMBERS = st.integers(0, 2**64 - 1)
ROWS = st.lists(st.tuples(NUMBERS, st.floats(0, 1e9)), max_size=MOST_ROWS).map(tuple)
SHORT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)
PAGES = st.builds(Page, NUMBERS, ROWS, SHORT, st.booleans())


@given(PAGES)
def test_what_is_written_is_read(page: Page) -> None:
    """Numbers, times and words, in one page's bytes."""
    raw = page.encode()
    assert len(raw) == PAGE_BYTES
    assert decode(raw) == page


@given(st.text(max_size=5_000), ROWS)
def test_a_failure_that_is_too_long_loses_its_end(text: str, rows: tuple[tuple[int, float], ...]) -> None:
    """Also in the middle of a letter, and with letters that cannot be written."""
    raw = Page(0, rows, text).encode()
    page = decode(raw)
    assert len(raw) == PAGE_BYTES
    assert page is not None
    assert page.rows == rows
    assert text.encode(errors="replace").decode().startswith(page.failure or "")


def test_more_rows_than_fit_are_refused() -> None:
    """By name, before anything is written."""
    with pytest.raises(ValueError, match="33 rows do not fit"):
        Page(0, ((1, 0.0),) * (MOST_ROWS + 1)).encode()


@given(st.binary(max_size=2 * BLOCK_BYTES))
def test_garbage_is_no_page(content: bytes) -> None:
    """And no error either."""
    assert decode(content) is None
    assert all(page is None for page in newest_of_each(content))


@given(PAGES, st.integers(0, PAGE_BYTES - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(page: Page, at: int, change: int) -> None:
    """Unless it lies behind what is written on the page."""
    raw = bytearray(page.encode())
    raw[at] ^= change
    assert decode(bytes(raw)) in (None, page)


@given(PAGES, PAGES, st.integers(0, PAGE_BYTES), st.booleans())
def test_a_half_written_page_leaves_the_one_before_it(
    before: Page, after: Page, cut: int, is_second: bool
) -> None:
    """A reader in the middle of a write sees what was there before, or all of what is new."""
    before, after = replace(before, number=4), replace(after, number=5)
    older = Page(3, ((7, 7.0),), "older")
    torn = after.encode()[:cut] + older.encode()[cut:]
    pages = [before.encode(), torn] if is_second else [torn, before.encode()]
    assert newest(b"".join(pages)) in (before, after)


def test_a_file_has_a_bound() -> None:
    """What lies behind it is not looked at, nor what is no whole block."""
    block = Page(0).encode() * 2
    assert len(list(newest_of_each(block * (MOST_BLOCKS + 2)))) == MOST_BLOCKS == FILE_BYTES // BLOCK_BYTES
    assert list(newest_of_each(block[:-1])) == []
