"""From a constraint, as a caller wrote it, to a grammar that sequences can follow."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import llguidance
import llguidance.hf
from transformers import AutoTokenizer

from actors.engines.torch.grammars.matcher import GrammarState
from actors.engines.torch.steering_failed import SteeringFailed
from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind


class CompiledGrammar:
    """A template: every sequence follows a copy of its own."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    def new_state(self) -> GrammarState:
        """At the beginning of the output. Any thread."""
        return GrammarState(self._matcher.deep_copy(), self._vocab_size)


class GrammarCompiler:
    """`find` in the event loop; `load` and `compile` on one other thread."""

    def __init__(self, model_path: Path, vocab_size: int) -> None:
        self._model_path = model_path
        self._vocab_size = vocab_size
        self._tokenizer: Any = None
        self._kept: OrderedDict[str, CompiledGrammar] = OrderedDict()

    def load(self) -> None:
        """Read the tokenizer."""
        if self._tokenizer is None:
            tokenizer = AutoTokenizer.from_pretrained(self._model_path, local_files_only=True)
            self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=self._vocab_size)

    def find(self, guided: Guided) -> CompiledGrammar | None:
        """What was compiled before."""
        return self._kept.get(_key(guided))

    def compile(self, guided: Guided) -> CompiledGrammar:
        """Raises InvalidRequest."""
        self.load()
        text = guided.constraint if isinstance(guided.constraint, str) else json.dumps(guided.constraint)
        field = f"sampling_options.guided_decoding.{guided.kind.value}"
        if guided.kind is GuidedKind.JSON:
            source = llguidance.LLMatcher.grammar_from_json_schema(text)
        elif guided.kind is GuidedKind.REGEX:
            source = llguidance.LLMatcher.grammar_from_regex(text)
        else:
            source = llguidance.grammar_from("grammar", text)
        matcher = llguidance.LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise InvalidRequest(field, text, matcher.get_error())
        grammar = CompiledGrammar(matcher, self._vocab_size)
        try:
            grammar.new_state().fill_mask()
        except SteeringFailed as exc:
            raise InvalidRequest(field, text, str(exc)) from exc
        self._kept[_key(guided)] = grammar
        return grammar


def _key(guided: Guided) -> str:
    return f"{guided.kind.value}:{json.dumps(guided.constraint, sort_keys=True)}"
