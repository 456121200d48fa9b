"""Constraints compiled by xgrammar, in the process that may die of them: the only module that imports it."""

from __future__ import annotations

import re
import time
from functools import partial
from importlib import import_module
from typing import Any

import numpy
from tokenizers import Tokenizer

from actors.engines.grammars.building import EMPTY, TOO_COSTLY, build_matcher
from actors.engines.grammars.complaints import brief
from actors.engines.grammars.limits import FIRST_MASK_S, TRIED_TOKENS, field_of, text_of
from actors.engines.grammars.vocabulary import Vocabulary
from actors.engines.grammars.walks import DEAD_END, Bits, DeadEnd, bits_of, walk
from actors.engines.trtllm.constraints.guiding import Backend, Guide, Option, guide_of
from actors.engines.trtllm.constraints.number_probes import bounded_numbers, forbidden_numbers
from actors.engines.trtllm.constraints.xgrammar_ends import check_ends
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind

# xgrammar's errors begin with the time and its source file.
_ORIGIN = re.compile(r"^(\[[^\]]*\]\s*)?(\S+:\d+:\s*)?(Check failed: \(.*?\) is false:\s*)?")


def judged_by_llguidance(guided: Guided, vocabulary: Vocabulary) -> Any:
    """What both back-ends mean the same by. Raises InvalidRequest, in which the one in use is named."""
    return build_matcher(guided, vocabulary, follower="xgrammar")


class XgrammarJudge:
    """Compiles with the calls of TensorRT-LLM. One constraint at a time, on any thread.

    Importing xgrammar takes seconds, and torch. Raises ImportError.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._sayable = vocabulary.sayable()
        self._library: Any = import_module("xgrammar")
        # Without a cache: what is kept of a constraint is measured. One thread: more would take memory.
        described = _described(vocabulary, self._library)
        compiler = self._library.GrammarCompiler(described, max_threads=1, cache_enabled=False)
        self._compilers = {
            Option.JSON: compiler.compile_json_schema,
            Option.REGEX: compiler.compile_regex,
            Option.GRAMMAR: compiler.compile_grammar,
            Option.STRUCTURAL_TAG: compiler.compile_structural_tag,
        }

    def __call__(self, guided: Guided) -> object:
        """What is kept of it. Raises InvalidRequest."""
        guide = guide_of(guided, Backend.XGRAMMAR)
        if guided.kind is GuidedKind.JSON:
            # It knows what contradicts itself, and alternatives that hold at once; xgrammar does not say.
            judged_by_llguidance(guided, self._vocabulary)
        compiled = self._compiled(guide, guided)
        # As xgrammar understood it: schemas, patterns and tags have become rules, too.
        check_ends(str(compiled.grammar), field_of(guided.kind), text_of(guided), self._sayable)
        self._try_out(compiled, guided)
        self._walk(compiled, guided)
        if guided.kind is GuidedKind.JSON:
            self._check_bounds(guide.text, guided)
        return compiled

    def _compiled(self, guide: Guide, guided: Guided) -> Any:
        try:
            return self._compilers[guide.option](guide.text)
        except Exception as exc:
            reason = brief(_ORIGIN.sub("", str(exc).strip()))
            raise _refusal(guided, f"what xgrammar can follow ({reason})") from exc

    def _try_out(self, compiled: Any, guided: Guided) -> None:
        """The first masks, and tokens that they allow. Raises InvalidRequest."""
        started_s = time.thread_time()
        matcher = self._library.GrammarMatcher(compiled)
        mask: Any = self._library.allocate_token_bitmask(1, self._vocabulary.width)
        for tried in range(TRIED_TOKENS):
            matcher.fill_next_token_bitmask(mask)
            if time.thread_time() - started_s > FIRST_MASK_S:
                raise _refusal(guided, f"{TOO_COSTLY} (its first token took more than {FIRST_MASK_S:g} s)")
            bits = bits_of(numpy.asarray(mask[0]), self._vocabulary.width)
            bits[list(self._vocabulary.ends)] = 0
            if not bits.any():
                if not tried:
                    raise _refusal(guided, EMPTY)
                return
            if not matcher.accept_token(int(bits.argmax())):
                raise _refusal(guided, "a constraint that xgrammar can follow")

    def _walk(self, compiled: Any, guided: Guided) -> None:
        """Answers to their ends. Raises InvalidRequest."""
        try:
            walk(
                partial(_Followed, self._library, compiled, self._vocabulary.width),
                self._vocabulary.ends,
            )
        except DeadEnd:
            raise _refusal(guided, DEAD_END) from None

    def _check_bounds(self, schema: str, guided: Guided) -> None:
        """Numbers just outside of their bounds: some bounds xgrammar does not hold."""
        for bounds in bounded_numbers(schema):
            compiled = self._compiled(Guide(Option.JSON, bounds.schema), guided)
            for number in forbidden_numbers(bounds):
                matcher = self._library.GrammarMatcher(compiled)
                if matcher.accept_string(number) and matcher.accept_token(self._vocabulary.ends[0]):
                    allowed = f"bounds that xgrammar holds: with {bounds.schema} it could answer {number}"
                    raise _refusal(guided, allowed)


class _Followed:
    """Implements `walks.Follower`."""

    def __init__(self, library: Any, compiled: Any, width: int) -> None:
        self._matcher = library.GrammarMatcher(compiled)
        self._mask: Any = library.allocate_token_bitmask(1, width)
        self._width = width

    def allowed(self) -> Bits:
        self._matcher.fill_next_token_bitmask(self._mask)
        return bits_of(numpy.asarray(self._mask[0]), self._width)

    def take(self, token: int) -> bool:
        if not self._matcher.accept_token(token):
            raise DeadEnd
        return not self._matcher.is_terminated()


def _described(vocabulary: Vocabulary, library: Any) -> Any:
    """The tokenizer as TensorRT-LLM describes it: its tokens in order, and its own end token only."""
    names: dict[str, int] = Tokenizer.from_str(vocabulary.written).get_vocab(with_added_tokens=True)
    # The only call for it that there is; TensorRT-LLM uses it, too.
    found = library.TokenizerInfo._detect_metadata_from_hf(vocabulary.written)
    return library.TokenizerInfo(
        sorted(names, key=names.__getitem__),
        vocab_type=found["vocab_type"],
        vocab_size=vocabulary.width,
        stop_token_ids=[vocabulary.ends[0]],
        add_prefix_space=found["add_prefix_space"],
    )


def _refusal(guided: Guided, allowed: str) -> InvalidRequest:
    return InvalidRequest(field_of(guided.kind), text_of(guided), allowed)
