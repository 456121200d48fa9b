"""Whether an answer that obeys a Lark grammar can always be ended.

llguidance compiles rules that never end, and patterns that nothing matches, and has no token to offer when it
gets there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import llguidance
import numpy

from actors.engines.grammars.lark_rules import ROOT, LarkRules, read_lark
from actors.engines.grammars.limits import PROBE_S
from actors.engines.grammars.rules import Unread
from actors.engines.grammars.vocabulary import Vocabulary


def endless_part(lark: str, vocabulary: Vocabulary, sayable: frozenset[int]) -> str | None:
    """A rule that can be reached and never ends, or a word that nobody can say; None where none was found.

    sayable: the bytes that are in tokens. Nothing is found in a text that cannot be read here.
    """
    try:
        read = read_lark(lark)
        return read.rules.endless(ROOT, _dead(read, vocabulary, sayable))
    except Unread:
        return None


def _dead(read: LarkRules, vocabulary: Vocabulary, sayable: frozenset[int]) -> Callable[[str], bool]:
    until_s = time.thread_time() + PROBE_S

    def is_dead(word: str) -> bool:
        if word.startswith('"'):
            return not _is_sayable(word, sayable)
        if word.startswith("%") or time.thread_time() > until_s:
            # A schema is refused where nothing is valid.
            return False
        return _is_empty(read.alone(word), vocabulary)

    return is_dead


def _is_sayable(literal: str, sayable: frozenset[int]) -> bool:
    """Of one that ignores case nothing is known."""
    try:
        text = json.loads(literal)
    except ValueError:
        return True
    return sayable.issuperset(str(text).encode(errors="surrogatepass"))


def _is_empty(lark: str, vocabulary: Vocabulary) -> bool:
    """Whether it has no answer, not even the empty one. A text that does not compile has some."""
    source = llguidance.LLMatcher.grammar_from_lark(lark)
    matcher: Any = llguidance.LLMatcher(vocabulary.library, source, log_level=0)
    if matcher.is_error():
        return False
    mask = numpy.zeros(-(-vocabulary.width // 32), dtype=numpy.int32)
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    return bool(matcher.is_error() or not mask.any())
