"""A stretch of time in cells."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from service.inspection.strip import ASCII, Strip


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 200))
@example(5e-324, 1e5, 40)
def test_every_moment_has_its_cell(total_ms: float, at_ms: float, cells: int) -> None:
    """However short the whole is and however late the moment: inside the strip, one column a cell."""
    strip = Strip(total_ms, cells, ASCII)
    strip.put(at_ms, ASCII.mark, "green")
    assert strip.text().plain.count(ASCII.mark) == 1
    assert len(strip.text().plain) == cells
