"""A tiny tokenizer, and ways through a grammar: given ones, and random ones that only the mask holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from actors.engines.torch.grammars.compiler import CompiledGrammar, compile_grammar
from protocols.spec import Guided, GuidedKind
from tests.actors.engines.torch.tiny_models import VOCAB_SIZE

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from actors.engines.grammars.vocabulary import Vocabulary

END, STOP, CALL, THINK = "<|end|>", "<|stop|>", "<|call|>", "</think>"
SPECIAL = (END, STOP, CALL, THINK)
# Added to the tokenizer as a whole, but text like any other.
PLAIN = "[plain]"
# Tokens of several bytes: steps of a grammar that are no single characters.
_MERGES = [
    ("t", "r"),
    ("tr", "u"),
    ("tru", "e"),
    ("{", '"'),
    ('"', "}"),
    ('"', ":"),
    ("<", "f"),
    ("<f", "n"),
    ("1", "0"),
]
# One token for each byte, in this order.
_LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


def write_tokenizer(folder: Path, ends: Any = END) -> Path:
    """A byte-level tokenizer of some 270 tokens; ``ends``: what the folder names as the end of an answer."""
    names = [*_LETTERS, *("".join(merge) for merge in _MERGES)]
    tokenizer = Tokenizer(models.BPE(vocab={name: at for at, name in enumerate(names)}, merges=_MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([PLAIN])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": ends}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@dataclass(frozen=True)
class Guide:
    """A vocabulary, and grammars over it."""

    vocabulary: Vocabulary

    def compile(self, kind: str, constraint: Any) -> CompiledGrammar:
        return compile_grammar(
            Guided(kind=GuidedKind(kind), constraint=constraint), self.vocabulary, VOCAB_SIZE
        )

    def tag(self, format_: Any) -> CompiledGrammar:
        return self.compile("structural_tag", {"type": "structural_tag", "format": format_})

    def ids(self, *parts: str | int) -> list[int]:
        """Text spelled in bytes, special tokens by their ids."""
        return [
            token for part in parts for token in ([part] if isinstance(part, int) else self._spelled(part))
        ]

    def allowed(self, state: Any) -> set[int]:
        """The tokens that may come next."""
        state.fill_mask()
        row = torch.zeros(VOCAB_SIZE)
        state.apply_mask(row)
        return set(torch.nonzero(row == 0).flatten().tolist())

    def accepts(self, grammar: CompiledGrammar, *parts: str | int) -> bool:
        """Whether an answer may be exactly this."""
        state, is_complete = grammar.new_state(), False
        for token in self.ids(*parts):
            if is_complete or token not in self.allowed(state):
                return False
            is_complete = state.accept(token)
        return is_complete or bool(self.allowed(state) & set(self.vocabulary.ends))

    def begins(self, grammar: CompiledGrammar, *parts: str | int) -> bool:
        """Whether an answer may begin like this."""
        state = grammar.new_state()
        return all(token in self.allowed(state) and not state.accept(token) for token in self.ids(*parts))

    def follows(self, grammar: CompiledGrammar, tokens: list[int]) -> bool:
        """Whether the masks allow these tokens, one after the other."""
        state = grammar.new_state()
        for at, token in enumerate(tokens):
            if token not in self.allowed(state):
                return False
            if state.accept(token):
                return at == len(tokens) - 1
        return True

    def walk(self, grammar: CompiledGrammar, rng: random.Random, limit: int = 400) -> str | None:
        """A random answer that the masks allow; None when it does not end within ``limit`` tokens."""
        state = grammar.new_state()
        tokens: list[int] = []
        for _ in range(limit):
            allowed = self.allowed(state)
            assert allowed, "nothing may come next, and the grammar is not complete"
            token = self._chosen(allowed, rng)
            if token in self.vocabulary.ends:
                return self.text(tokens)
            tokens.append(token)
            if state.accept(token):
                return self.text(tokens)
        return None

    def text(self, tokens: list[int]) -> str:
        return bytes(
            byte for token in tokens for byte in self.vocabulary.library.decode_bytes([token])
        ).decode()

    def _spelled(self, text: str) -> list[int]:
        pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return [_LETTERS.index(letter) for name, _ in pre_tokenizer.pre_tokenize_str(text) for letter in name]

    def _chosen(self, allowed: set[int], rng: random.Random) -> int:
        """At random; but an answer shall come to its end, and is not to be mostly blanks."""
        closing = allowed & {*self.vocabulary.ends, *self.ids('"}]')}
        if closing and rng.random() < 0.3:
            return rng.choice(sorted(closing))
        blanks = set(self.ids(" \n\r\t"))
        return rng.choice(sorted(allowed - blanks or allowed))
