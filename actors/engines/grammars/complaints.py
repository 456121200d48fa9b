"""llguidance's error texts, made short. They quote the constraint: only its caller may see them."""

from __future__ import annotations

_MOST_CHARACTERS = 200
_OVERLAPPING = "oneOf constraints are not supported"


def brief(text: str) -> str:
    """The line that says what is wrong, without the drawing around it."""
    if text.startswith(_OVERLAPPING):
        return "oneOf whose alternatives can hold at once; say anyOf"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    # "unknown special token" goes on with all there are.
    line = (reasons or lines or ["no reason given"])[0].split("; following ")[0]
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"
