"""Constraints that are texts: regular expressions, lists of choices, and grammars."""

from __future__ import annotations

import re

import llguidance
import llguidance.gbnf_to_lark

from actors.engines.torch.grammars.complaints import brief
from actors.engines.torch.grammars.lark import literal
from actors.engines.torch.grammars.limits import MOST_CHOICES, MOST_GBNF_RULES
from actors.engines.torch.grammars.plain import as_texts
from protocols.errors import InvalidRequest

_LARK = re.compile(r"%llguidance\b|start\s*:")
# Options of a rule that need the engine to go back, or to sample otherwise: it would not obey them.
_DISOBEYED = re.compile(
    r"^[!?]*\w+(?:\.\d+)?\s*\[[^\]\n]*\b(stop|stop_capture|temperature|max_tokens)\b", re.M
)


def regex_source(pattern: str) -> str:
    """The whole output matches. Unicode classes, as in Python: the digits of all scripts are digits."""
    return llguidance.LLMatcher.grammar_from_regex(pattern)


def choice_source(constraint: object, field: str) -> str:
    """The output is one of some strings, taken literally. Raises InvalidRequest."""
    choices = as_texts(constraint)
    if choices is None or not 0 < len(choices) <= MOST_CHOICES:
        raise InvalidRequest(field, constraint, f"a list of 1 to {MOST_CHOICES} strings, none of them empty")
    texts = dict.fromkeys(literal(choice) for choice in choices)
    return llguidance.LLMatcher.grammar_from_lark(f"start: {' | '.join(texts)}")


def grammar_source(text: str, field: str) -> str:
    """A grammar in Lark's syntax or in GBNF. Raises InvalidRequest."""
    return llguidance.LLMatcher.grammar_from_lark(lark_of(text, field))


def lark_of(text: str, field: str) -> str:
    """As Lark text. It is Lark if a line begins with ``start:`` or ``%llguidance``, else GBNF."""
    # Line by line: one expression over all of it takes time that grows with the square of its blank lines.
    if any(_LARK.match(line.lstrip()) for line in text.splitlines()):
        option = _DISOBEYED.search(text)
        if option is not None:
            raise InvalidRequest(field, option[0], f"rules without the option {option[1]}")
        return text
    rules = text.count("::=")
    if not 0 < rules <= MOST_GBNF_RULES:
        gbnf = f"GBNF text with 'root ::=' and at most {MOST_GBNF_RULES} rules"
        allowed = f"Lark text with a rule 'start:', or {gbnf}"
        raise InvalidRequest(field, text, allowed)
    try:
        return llguidance.gbnf_to_lark.gbnf_to_lark(text)
    except Exception as exc:
        # Its parser raises whatever comes: also IndexError and RecursionError.
        reason = "nested too deeply" if isinstance(exc, RecursionError) else brief(str(exc))
        raise InvalidRequest(field, text, f"a grammar in Lark's syntax or in GBNF ({reason})") from exc
