"""One story as a few lines of plain text: where the time of a request went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Below this a bar says nothing.
NARROWEST = 48
_LABEL = 10
_FIGURE = 13
_BAR = "█"
_TRACK = "·"


class _Row(NamedTuple):
    label: str
    start_ms: float
    duration_ms: float


def render_waterfall(story: Mapping[str, Any], width: int = 80) -> list[str]:
    """A headline, one bar for each stage, and the figures; no line is longer than ``width``.

    story: as `story_as_dict` makes it (or as JSON brought it back). A bar covers every cell that its stage
    touches, so the shortest stage is still seen; the exact duration stands beside it.
    """
    width = max(width, NARROWEST)
    cells = width - _LABEL - _FIGURE
    total_ms = float(story["duration_ms"])
    lines = [_cut(_headline(story), width)]
    lines += [_bar(row, total_ms, cells) for row in _rows(story)]
    lines.append(_cut(_figures(story), width))
    if story["trace_id"] is not None:
        lines.append(_cut(f"trace {story['trace_id']}", width))
    return lines


def _headline(story: Mapping[str, Any]) -> str:
    reason = story["finish_reason"] or story["cancel_reason"] or story["error"] or story["error_kind"]
    how = story["outcome"] + (f" ({reason})" if reason and reason != story["outcome"] else "")
    where = "" if story["outcome"] == "completed" else f" in {story['phase']}"
    return f"request {story['engine_id']}  {how}{where}  {story['duration_ms']:.1f} ms"


def _rows(story: Mapping[str, Any]) -> Iterator[_Row]:
    """A hop each, as its span is called; below the executor's what it consists of."""
    for hop in story["hops"]:
        label = str(hop["name"]).removeprefix("actor.")
        yield _Row(label, hop["start_ms"], hop["duration_ms"])
        if label == "execute":
            yield _Row("  waiting", hop["start_ms"], hop["waiting_ms"])
            if hop["prefill_ms"] is not None:
                yield _Row("  prefill", hop["start_ms"] + hop["waiting_ms"], hop["prefill_ms"])


def _bar(row: _Row, total_ms: float, cells: int) -> str:
    first, last = 0, 0
    if total_ms > 0:
        first = min(int(row.start_ms / total_ms * cells), cells - 1)
        last = min(int((row.start_ms + row.duration_ms) / total_ms * cells), cells - 1)
    bar = _TRACK * first + _BAR * (last - first + 1) + _TRACK * (cells - 1 - last)
    return f"{row.label:<{_LABEL}}{bar}{row.duration_ms:>{_FIGURE - 3}.3f} ms"


def _figures(story: Mapping[str, Any]) -> str:
    cached = f" ({story['cached_tokens']} cached)" if story["cached_tokens"] else ""
    parts = [f"{story['prompt_tokens']} tokens in{cached}, {story['completion_tokens']} out"]
    if story["ttft_ms"] is not None:
        parts.append(f"first token after {story['ttft_ms']:.1f} ms")
    if story["itl_mean_ms"] is not None:
        parts.append(f"then one every {story['itl_mean_ms']:.1f} ms")
    return ", ".join(parts)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"
