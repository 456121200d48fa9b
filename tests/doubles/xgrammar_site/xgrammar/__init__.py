"""A double of xgrammar 0.1.32, as much of it as is called; the folder around it is put on a path.

It follows grammars by llguidance, and has xgrammar's traps: errors that begin with a time and a source file,
a zero character in a pattern that ends the process, a bound that it does not hold.
"""

from __future__ import annotations

import json
import os
import signal
from enum import Enum
from typing import Any

import llguidance
import llguidance.gbnf_to_lark
import numpy
from numpy.typing import NDArray

_ORIGIN = "[12:00:00] /project/cpp/converter.cc:75: "
# Written by every description of a tokenizer: what the real one makes of the tokens it is given.
_written = ""


def _by_id(written: str) -> list[str]:
    """All tokens of a tokenizer, in the order of their ids."""
    told = json.loads(written)
    ids: dict[str, int] = {
        **told["model"]["vocab"],
        **{each["content"]: each["id"] for each in told["added_tokens"]},
    }
    return sorted(ids, key=ids.__getitem__)


class VocabType(Enum):
    """How tokens are written."""

    RAW = 0
    BYTE_FALLBACK = 1
    BYTE_LEVEL = 2


class TokenizerInfo:
    """Tokens in the order of their ids, and those that end an answer."""

    def __init__(
        self,
        encoded_vocab: list[str],
        vocab_type: VocabType = VocabType.RAW,
        *,
        vocab_size: int | None = None,
        stop_token_ids: list[int] | int | None = None,
        add_prefix_space: bool = False,
    ) -> None:
        assert vocab_type is VocabType.BYTE_LEVEL
        assert not add_prefix_space
        assert isinstance(stop_token_ids, list)
        assert len(stop_token_ids) == 1
        assert len(encoded_vocab) <= (vocab_size or 0)
        assert encoded_vocab == _by_id(_written), "a token's place is its id, also of one that was added"
        (end,) = stop_token_ids
        self.library = llguidance.LLTokenizer(_written, n_vocab=vocab_size, eos_token=end)

    @staticmethod
    def _detect_metadata_from_hf(backend_str: str) -> dict[str, Any]:
        global _written  # noqa: PLW0603 - the real one keeps it in its own memory
        _written = backend_str
        return {"vocab_type": VocabType.BYTE_LEVEL, "add_prefix_space": False}


class CompiledGrammar:
    """Made by the compiler only."""

    def __init__(self, library: Any, source: str, grammar: str = 'root ::= (("x"))') -> None:
        # Of the real one it is an object of which this is the text.
        self.grammar = grammar
        self.matcher = llguidance.LLMatcher(library, source, log_level=0)
        if self.matcher.is_error():
            raise RuntimeError(f"{_ORIGIN}{self.matcher.get_error()}\n")


class GrammarCompiler:
    """One call for each kind of text; other kinds of arguments are not taken."""

    def __init__(
        self, tokenizer_info: TokenizerInfo, *, max_threads: int = 8, cache_enabled: bool = True
    ) -> None:
        assert (max_threads, cache_enabled) == (1, False), "a trial measures what one constraint takes"
        self._library = tokenizer_info.library

    def compile_json_schema(self, schema: str) -> CompiledGrammar:
        read = json.loads(schema)
        if isinstance(read, dict) and read.get("type") == "integer" and 1 < read.get("minimum", 0) < 10:
            read["minimum"] = 1
        return self._compile(llguidance.LLMatcher.grammar_from_json_schema(json.dumps(read)))

    def compile_regex(self, regex: str) -> CompiledGrammar:
        if "\0" in regex:
            os.kill(os.getpid(), signal.SIGSEGV)
        return self._compile(llguidance.LLMatcher.grammar_from_regex(regex))

    def compile_grammar(self, grammar: str) -> CompiledGrammar:
        try:
            lark = llguidance.gbnf_to_lark.gbnf_to_lark(grammar)
        except Exception as exc:
            raise RuntimeError(f"{_ORIGIN}EBNF parser error: {exc}") from exc
        return self._compile(llguidance.LLMatcher.grammar_from_lark(lark), grammar)

    def compile_structural_tag(self, structural_tag: str) -> CompiledGrammar:
        """Only whether the form is the newer one, and knows the first format."""
        read = json.loads(structural_tag)
        if "format" not in read:
            raise RuntimeError("Invalid structural tag error: Structural tag must have a format field")
        if read["format"].get("type") in {"token", "optional", "star", "plus", "repeat"}:
            raise RuntimeError("Invalid structural tag error: Format type not recognized")
        return self._compile(llguidance.LLMatcher.grammar_from_lark("start: /(?s:.+)/"))

    def _compile(self, source: str, grammar: str = 'root ::= (("x"))') -> CompiledGrammar:
        return CompiledGrammar(self._library, source, grammar)


class GrammarMatcher:
    """One answer's way through a grammar."""

    def __init__(self, compiled_grammar: CompiledGrammar) -> None:
        self._library = compiled_grammar
        self._matcher = compiled_grammar.matcher.deep_copy()

    def fill_next_token_bitmask(self, bitmask: NDArray[numpy.int32], index: int = 0) -> bool:
        row = bitmask[index]
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        return True

    def accept_token(self, token_id: int) -> bool:
        return bool(self._matcher.try_consume_tokens([token_id]))

    def is_terminated(self) -> bool:
        return bool(self._matcher.is_stopped())

    def accept_string(self, input_str: str) -> bool:
        """Byte by byte: the tokenizer of the tests has a token for each."""
        tokens = [ord(letter) - ord("!") for letter in input_str]
        return self._matcher.try_consume_tokens(tokens) == len(tokens)


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> NDArray[numpy.int32]:
    """All tokens allowed, one bit each. The real one's is of torch, which takes seconds to import."""
    return numpy.full((batch_size, -(-vocab_size // 32)), -1, dtype=numpy.int32)
