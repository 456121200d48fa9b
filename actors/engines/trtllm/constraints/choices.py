"""A list of choices as a regular expression: TensorRT-LLM has no option for them."""

from __future__ import annotations

from actors.engines.grammars.limits import MOST_CHOICES
from actors.engines.grammars.plain import as_texts
from protocols.errors import InvalidRequest

# What is special outside of a class, to both back-ends. A "-" or "/" is a character like others there.
_SPECIAL = frozenset("\\.^$|?*+()[]{}")


def choice_pattern(constraint: object, field: str) -> str:
    """The whole answer is one of the choices, taken literally. Raises InvalidRequest.

    Both back-ends match patterns with whole answers, so that nothing has to be anchored, and both follow
    all alternatives at once: one may begin with another.
    """
    choices = as_texts(constraint)
    if choices is None or not 0 < len(choices) <= MOST_CHOICES:
        raise InvalidRequest(field, constraint, f"a list of 1 to {MOST_CHOICES} strings, none of them empty")
    return "|".join(dict.fromkeys("".join(map(_literal, choice)) for choice in choices))


def _literal(character: str) -> str:
    if character in _SPECIAL:
        return f"\\{character}"
    # Control characters by their numbers: a zero in a pattern ends the process that xgrammar runs in. With
    # four digits: of two it would read on.
    is_control = character < " " or character == "\x7f"
    return f"\\u{ord(character):04x}" if is_control else character
