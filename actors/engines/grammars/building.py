"""From a constraint, as a caller wrote it, to a matcher of llguidance that was tried out.

The same here and in the process that tries constraints first, so it imports neither torch nor transformers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import llguidance
import numpy

from actors.engines.grammars.complaints import brief
from actors.engines.grammars.limits import FIRST_MASK_S, TRIED_TOKENS, field_of, parser_limits, text_of
from actors.engines.grammars.schemas import read_schema, schema_source
from actors.engines.grammars.structural_tags import structural_tag_source
from actors.engines.grammars.texts import choice_source, grammar_source, regex_source
from actors.engines.grammars.vocabulary import Vocabulary
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind

TOO_COSTLY = "a constraint that costs less to follow"
EMPTY = "a constraint that has other answers than the empty one"


def llguidance_judge(vocabulary: Vocabulary) -> Callable[[Guided], object]:
    """What tries constraints for an engine that obeys them by `build_matcher`."""
    return partial(build_matcher, vocabulary=vocabulary)


def build_matcher(guided: Guided, vocabulary: Vocabulary, follower: str = "llguidance") -> Any:
    """Compile, and try the first tokens. Any thread but the event loop's; there is no limit to its time.

    follower: what is said to follow constraints, where llguidance judges them for another back-end.
    Raises InvalidRequest for a constraint that makes no sense, that cannot be obeyed, or that costs too much.
    """
    text, field = text_of(guided), field_of(guided.kind)
    matcher = llguidance.LLMatcher(
        vocabulary.library, _source(guided, field, vocabulary), log_level=0, limits=parser_limits()
    )
    if matcher.is_error():
        raise InvalidRequest(field, text, f"what {follower} can follow ({brief(matcher.get_error())})")
    _try_out(matcher, vocabulary, field, text)
    return matcher


def _source(guided: Guided, field: str, vocabulary: Vocabulary) -> str:
    """A grammar of llguidance, as text."""
    constraint = guided.constraint
    match guided.kind:
        case GuidedKind.JSON:
            return schema_source(read_schema(constraint, field), field)
        case GuidedKind.CHOICE:
            return choice_source(constraint, field)
        case GuidedKind.STRUCTURAL_TAG:
            return structural_tag_source(constraint, field, vocabulary)
        case GuidedKind.REGEX | GuidedKind.GRAMMAR:
            if not isinstance(constraint, str):
                raise InvalidRequest(field, constraint, "a text")
            return (
                regex_source(constraint)
                if guided.kind is GuidedKind.REGEX
                else grammar_source(constraint, field)
            )


def _try_out(matcher: Any, vocabulary: Vocabulary, field: str, text: str) -> None:
    """The first mask, on the template, so that its copies have it; then some tokens, on a copy.

    What a matcher cannot do it says only when it has to.
    """
    started_s = time.thread_time()
    mask = numpy.zeros(-(-vocabulary.width // 32), dtype=numpy.int32)
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    if matcher.is_error():
        raise InvalidRequest(field, text, f"{TOO_COSTLY} ({brief(matcher.get_error())})")
    if time.thread_time() - started_s > FIRST_MASK_S:
        raise InvalidRequest(field, text, f"{TOO_COSTLY} (its first token took more than {FIRST_MASK_S:g} s)")
    copy = matcher.deep_copy()
    for tried in range(TRIED_TOKENS):
        bits = numpy.unpackbits(mask.view(numpy.uint8), bitorder="little")
        bits[list(vocabulary.ends)] = 0
        if not bits.any() and not tried:
            raise InvalidRequest(field, text, EMPTY)
        if not bits.any() or copy.is_stopped():
            return
        copy.consume_token(int(bits.argmax()))
        if not copy.is_error() and not copy.is_stopped():
            copy.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if copy.is_error():
            raise InvalidRequest(field, text, f"{TOO_COSTLY} ({brief(copy.get_error())})")
