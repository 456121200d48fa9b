"""Text that came from outside, before a terminal gets it."""

from __future__ import annotations


def printable(text: str, encoding: str = "utf-8") -> str:
    """The text on one line, with everything escaped that is no plain character.

    Control characters could move the cursor or recolour the screen, marks of direction could turn a line
    around; a character that the encoding lacks could not be written at all.
    """
    plain = "".join(char if char.isprintable() else _escaped(char) for char in text)
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
