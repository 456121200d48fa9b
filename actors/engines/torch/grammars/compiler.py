"""Compiled grammars: what a constraint became, ready to be followed by any number of sequences."""

from __future__ import annotations

from typing import Any

from actors.engines.grammars.building import build_matcher
from actors.engines.grammars.vocabulary import Vocabulary
from actors.engines.torch.grammars.matcher import GrammarState
from protocols.spec import Guided


class CompiledGrammar:
    """A template: every sequence follows a copy of its own."""

    def __init__(self, matcher: Any, vocabulary: Vocabulary, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size

    def new_state(self) -> GrammarState:
        """At the beginning of the output. Any thread."""
        return GrammarState(self._matcher.deep_copy(), self._vocabulary, self._vocab_size)


def compile_grammar(guided: Guided, vocabulary: Vocabulary, vocab_size: int) -> CompiledGrammar:
    """Any thread but the event loop's; there is no limit to its time, nor to its memory and stack.

    So a caller's constraint comes here only after `Trials.check` has let it through. Raises InvalidRequest
    as `build_matcher` does.
    """
    return CompiledGrammar(build_matcher(guided, vocabulary), vocabulary, vocab_size)
