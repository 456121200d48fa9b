"""What tries constraints for TensorRT-LLM, in the process that may die of them.

A constraint that gets through was compiled as the engine will compile it. Where the process has no xgrammar,
which comes with TensorRT-LLM, schemas and patterns for it are judged by llguidance, and the rest by shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import llguidance

from actors.engines.grammars.building import build_matcher
from actors.engines.grammars.complaints import brief
from actors.engines.grammars.lark_ends import endless_part
from actors.engines.grammars.limits import field_of, text_of
from actors.engines.grammars.vocabulary import Vocabulary
from actors.engines.grammars.walks import DEAD_END, DeadEnd, LlguidanceFollower, ends_refusal, walk
from actors.engines.trtllm.constraints.guiding import Backend, Guide, Option, guide_of
from actors.engines.trtllm.constraints.xgrammar_trials import XgrammarJudge, judged_by_llguidance
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind

Judge = Callable[[Guided], object]

_TO_LLGUIDANCE: dict[Option, Callable[[str], str]] = {
    Option.JSON: llguidance.LLMatcher.grammar_from_json_schema,
    Option.REGEX: llguidance.LLMatcher.grammar_from_regex,
    Option.GRAMMAR: llguidance.LLMatcher.grammar_from_lark,
}
# What llguidance can say of constraints for xgrammar: both mean the same by them.
_SHARED = frozenset({GuidedKind.JSON, GuidedKind.REGEX, GuidedKind.CHOICE})


def llguidance_judge(vocabulary: Vocabulary) -> Judge:
    """For the back-end llguidance."""

    sayable = vocabulary.sayable()

    def judge(guided: Guided) -> object:
        """Within our limits, and then with the engine's own call, whose limits are others."""
        guide = guide_of(guided, Backend.LLGUIDANCE)
        build_matcher(guided, vocabulary)
        if guide.option is Option.GRAMMAR:
            _check_ends(guide.text, guided, vocabulary, sayable)
        matcher = _as_engine(guided, guide, vocabulary)
        _walk(matcher, guided, vocabulary)
        return matcher

    return judge


def xgrammar_judge(vocabulary: Vocabulary) -> Judge:
    """For the back-end xgrammar."""
    return _without_xgrammar(vocabulary) if find_spec("xgrammar") is None else XgrammarJudge(vocabulary)


def _without_xgrammar(vocabulary: Vocabulary) -> Judge:
    def judge(guided: Guided) -> object:
        guide = guide_of(guided, Backend.XGRAMMAR)
        return judged_by_llguidance(guided, vocabulary) if guided.kind in _SHARED else guide

    return judge


def _as_engine(guided: Guided, guide: Guide, vocabulary: Vocabulary) -> Any:
    """As TensorRT-LLM does. Raises InvalidRequest where that would fail."""
    matcher = llguidance.LLMatcher(vocabulary.library, _TO_LLGUIDANCE[guide.option](guide.text), log_level=0)
    if matcher.is_error():
        allowed = f"what TensorRT-LLM's llguidance can follow ({brief(matcher.get_error())})"
        raise InvalidRequest(field_of(guided.kind), text_of(guided), allowed)
    return matcher


def _check_ends(lark: str, guided: Guided, vocabulary: Vocabulary, sayable: frozenset[int]) -> None:
    endless = endless_part(lark, vocabulary, sayable)
    if endless is not None:
        raise InvalidRequest(field_of(guided.kind), text_of(guided), ends_refusal(endless))


def _walk(matcher: Any, guided: Guided, vocabulary: Vocabulary) -> None:
    try:
        walk(partial(LlguidanceFollower, matcher, vocabulary.width), vocabulary.ends)
    except DeadEnd:
        raise InvalidRequest(field_of(guided.kind), text_of(guided), DEAD_END) from None
