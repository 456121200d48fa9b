"""Constraints that are texts: regular expressions, lists of choices, and grammars."""

from __future__ import annotations

import json
import re

import llguidance
import llguidance.gbnf_to_lark

from actors.engines.grammars.complaints import brief
from actors.engines.grammars.lark import literal
from actors.engines.grammars.limits import MOST_CHOICES, MOST_RULES
from actors.engines.grammars.plain import as_texts
from actors.engines.grammars.schemas import check_schema
from protocols.errors import InvalidRequest

_LARK = re.compile(r"%llguidance\b|start\s*:")
# Options of a rule that need the engine to go back, or to sample otherwise: it would not obey them.
_DISOBEYED = re.compile(
    r"^[!?]*\w+(?:\.\d+)?\s*\[[^\]\n]*\b(stop|stop_capture|temperature|max_tokens)\b", re.M
)


# The beginning of a rule or of a terminal.
_RULE = re.compile(r"[!?]*\w+(?:\.\d+)?\s*(?:\[[^\]\n]*\]\s*)?:")
_INLINE_SCHEMA = re.compile(r"%json\b\s*")
_DECODER = json.JSONDecoder()


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
    lines = [line.lstrip() for line in text.splitlines()]
    if any(_LARK.match(line) for line in lines):
        if sum(_RULE.match(line) is not None for line in lines) > MOST_RULES:
            raise InvalidRequest(field, text, f"Lark text with at most {MOST_RULES} rules")
        option = _DISOBEYED.search(text)
        if option is not None:
            raise InvalidRequest(field, option[0], f"rules without the option {option[1]}")
        return _checked(text, field)
    rules = text.count("::=")
    if not 0 < rules <= MOST_RULES:
        gbnf = f"GBNF text with 'root ::=' and at most {MOST_RULES} rules"
        allowed = f"Lark text with a rule 'start:', or {gbnf}"
        raise InvalidRequest(field, text, allowed)
    try:
        lark: str = llguidance.gbnf_to_lark.gbnf_to_lark(text)
    except Exception as exc:
        # Its parser raises whatever comes: also IndexError and RecursionError.
        reason = "nested too deeply" if isinstance(exc, RecursionError) else brief(str(exc))
        raise InvalidRequest(field, text, f"a grammar in Lark's syntax or in GBNF ({reason})") from exc
    return _checked(lark, field)


def _checked(lark: str, field: str) -> str:
    """Schemas inside of Lark text are schemas like others. One that cannot be made out is refused.

    Also where the word only stands in a literal: better that than a schema that is not obeyed.
    """
    for found in _INLINE_SCHEMA.finditer(lark):
        try:
            schema, _ = _DECODER.raw_decode(lark, found.end())
        except (ValueError, RecursionError) as exc:
            raise InvalidRequest(field, found[0], "%json with a JSON schema right behind it") from exc
        check_schema(schema, f"{field}.%json")
    return lark
