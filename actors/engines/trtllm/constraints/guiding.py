"""A constraint in TensorRT-LLM's words: one option of its guided decoding, and the text of it.

Its two back-ends read different languages; each is given what it was tried with, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from actors.engines.grammars.limits import MOST_RULES, field_of
from actors.engines.grammars.plain import write_json
from actors.engines.grammars.schemas import read_schema
from actors.engines.grammars.structural_tags import read_tag
from actors.engines.grammars.texts import lark_of
from actors.engines.trtllm.constraints.choices import choice_pattern
from actors.engines.trtllm.constraints.xgrammar_ends import check_ends
from actors.engines.trtllm.constraints.xgrammar_patterns import check_pattern
from actors.engines.trtllm.constraints.xgrammar_schemas import obeyed
from actors.engines.trtllm.constraints.xgrammar_tags import obeyed_tag
from actors.engines.trtllm.library import Library
from protocols.errors import EngineStartError, InternalError, InvalidRequest
from protocols.spec import Guided, GuidedKind


class Backend(StrEnum):
    """What obeys constraints inside of TensorRT-LLM; the values are those of ``guided_decoding_backend``."""

    XGRAMMAR = "xgrammar"
    LLGUIDANCE = "llguidance"


class Option(StrEnum):
    """Of TensorRT-LLM's ``GuidedDecodingParams``.

    ``json_object`` is not used: to xgrammar it is any object or array, to llguidance the same as a schema.
    """

    JSON = "json"
    REGEX = "regex"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True, slots=True)
class Guide:
    """What a constraint became. The text is never empty: an empty one counts as none, or as any JSON."""

    option: Option
    text: str


_KINDS = {
    Backend.XGRAMMAR: frozenset(GuidedKind),
    Backend.LLGUIDANCE: frozenset(GuidedKind) - {GuidedKind.STRUCTURAL_TAG},
}


def backend_of(name: str | None) -> Backend | None:
    """The back-end with this name; None where there is none. Raises EngineStartError for another word."""
    if name is None:
        return None
    try:
        return Backend(name)
    except ValueError:
        known = " or ".join(Backend)
        raise EngineStartError(
            f"guided_decoding_backend is {name!r}.", f"Say {known}, or leave it out."
        ) from None


def guided_kinds(name: str | None) -> frozenset[GuidedKind]:
    """The forms of constraints that the back-end with this name obeys. Raises EngineStartError."""
    backend = backend_of(name)
    return frozenset() if backend is None else _KINDS[backend]


def guide_of(guided: Guided, backend: Backend) -> Guide:
    """What this back-end is given for a constraint.

    Raises InvalidRequest for what is surely wrong, or not obeyed there; the rest is found by a trial.
    """
    field, constraint = field_of(guided.kind), guided.constraint
    match guided.kind:
        case GuidedKind.JSON:
            return _of_schema(constraint, field, backend)
        case GuidedKind.REGEX:
            return _of_pattern(_text(constraint, field), field, backend)
        case GuidedKind.CHOICE:
            return Guide(Option.REGEX, choice_pattern(constraint, field))
        case GuidedKind.GRAMMAR:
            return _of_grammar(_text(constraint, field), field, backend)
        case GuidedKind.STRUCTURAL_TAG:
            return _of_tag(constraint, field, backend)


def guided_params(guided: Guided, library: Library) -> Any:
    """A fresh ``GuidedDecodingParams`` of a constraint that was prepared."""
    guide = guided.grammar
    if not isinstance(guide, Guide):
        raise InternalError("a constraint was submitted that nobody had prepared")
    return library.GuidedDecodingParams(**{guide.option.value: guide.text})


def _of_schema(constraint: object, field: str, backend: Backend) -> Guide:
    schema = read_schema(constraint, field)
    if backend is Backend.XGRAMMAR:
        schema = obeyed(schema, field)
    # Written anew: what is checked here is what is read there. A schema that is just true reads worse.
    return Guide(Option.JSON, "{}" if schema is True else write_json(schema))


def _of_pattern(pattern: str, field: str, backend: Backend) -> Guide:
    if backend is Backend.XGRAMMAR:
        check_pattern(pattern, field)
    return Guide(Option.REGEX, pattern)


def _of_grammar(text: str, field: str, backend: Backend) -> Guide:
    """llguidance reads Lark, of which GBNF is made; xgrammar reads GBNF, which cannot be made of Lark."""
    if backend is Backend.LLGUIDANCE:
        return Guide(Option.GRAMMAR, lark_of(text, field))
    if not 0 < text.count("::=") <= MOST_RULES or "\0" in text:
        allowed = (
            f"GBNF text with 'root ::=' and at most {MOST_RULES} rules; the back-end xgrammar reads no Lark"
        )
        raise InvalidRequest(field, text, allowed)
    check_ends(text, field, text)
    return Guide(Option.GRAMMAR, text)


def _of_tag(constraint: object, field: str, backend: Backend) -> Guide:
    if backend is Backend.LLGUIDANCE:
        allowed = "nothing; TensorRT-LLM's back-end llguidance follows no structural tags"
        raise InvalidRequest(field, constraint, allowed)
    tag = obeyed_tag(read_tag(constraint, field), f"{field}.format")
    return Guide(Option.STRUCTURAL_TAG, write_json({"type": "structural_tag", "format": tag}))


def _text(constraint: object, field: str) -> str:
    if not isinstance(constraint, str) or not constraint:
        raise InvalidRequest(field, constraint, "a text that is not empty")
    return constraint
