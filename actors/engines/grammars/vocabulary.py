"""The model's tokenizer as llguidance wants it, and which of its tokens are special."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llguidance

from actors.engines.grammars.plain import as_list, as_object
from protocols.strict_json import read_json

_KNOWS_ENDS = hasattr(llguidance.LLTokenizer, "eos_tokens")
_SETTINGS = ("generation_config.json", "config.json")


class NoTokenizer(Exception):
    """The model folder has none that grammars can be followed with. The text says why."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Of one model.

    library: llguidance's tokenizer, ``width`` tokens wide; written: what it was made of, as JSON text.
    tokens: how many of them exist. special: ids of the tokens that are no text, by name. names: finds
    them in a text. ends: ids that end an answer.
    """

    library: Any
    width: int
    tokens: int
    special: dict[str, int]
    names: re.Pattern[str] | None
    ends: tuple[int, ...]
    written: str = field(repr=False)

    def as_plain(self) -> dict[str, Any]:
        """What JSON can say of it; `vocabulary_of` makes an equal one of that, in any process."""
        return {
            "written": self.written,
            "width": self.width,
            "tokens": self.tokens,
            "special": self.special,
            "ends": list(self.ends),
        }

    def find(self, token: object) -> int | None:
        """The id of a token, given as its name, its text, or its id. None for what is not one token."""
        if isinstance(token, str):
            if token in self.special:
                return self.special[token]
            spelled = self.library.tokenize_str(token)
            return int(spelled[0]) if len(spelled) == 1 else None
        if isinstance(token, int) and not isinstance(token, bool) and 0 <= token < self.tokens:
            return token
        return None

    def text_of(self, token: int) -> str:
        """What a token is called, or says."""
        names = (name for name, number in self.special.items() if number == token)
        return next(names, self.library.decode_str([token]))

    def sayable(self) -> frozenset[int]:
        """The bytes that are in tokens which are text. Looks at all of them: some 20 ms for 100,000."""
        found: set[int] = set()
        no_text = {*self.special.values(), *self.ends}
        for token in range(self.tokens):
            if token not in no_text:
                found.update(self.library.decode_bytes([token]))
        return frozenset(found)

    def parts_of(self, text: str) -> list[str | int]:
        """Text cut at the special tokens in it: pieces of plain text, and ids."""
        pieces = [text] if self.names is None else self.names.split(text)
        return [self.special.get(piece, piece) for piece in pieces if piece]


def vocabulary_of(plain: dict[str, Any]) -> Vocabulary:
    """From `Vocabulary.as_plain`. Needs neither torch nor transformers."""
    ends, special = tuple(plain["ends"]), plain["special"]
    library = _library(plain["written"], plain["width"], ends)
    return Vocabulary(
        library, plain["width"], plain["tokens"], special, _finder(special), ends, plain["written"]
    )


def read_vocabulary(folder: Path, vocab_size: int, *, trust_remote_code: bool = False) -> Vocabulary:
    """Read the tokenizer of a model whose logits are ``vocab_size`` wide; takes a second.

    Raises NoTokenizer. A tokenizer may be smaller than the logits (padding) or larger.
    """
    tokenizer = _read(folder, trust_remote_code=trust_remote_code)
    tokens = max(tokenizer.get_vocab().values(), default=-1) + 1
    width = max(tokens, vocab_size)
    ends = _ends(folder, tokenizer, min(tokens, vocab_size))
    if not ends:
        raise NoTokenizer("the model folder names no token that ends an answer")
    try:
        written = _write(tokenizer)
        library = _library(written, width, ends)
    except Exception as exc:
        raise NoTokenizer(
            f"its tokenizer is of a kind that cannot be followed ({type(exc).__name__})"
        ) from exc
    added: dict[int, Any] = tokenizer.added_tokens_decoder
    # llguidance's opinion counts: "<tool_call>" is special to it although the tokenizer calls it text.
    special = {str(one.content): number for number, one in added.items() if library.is_special_token(number)}
    return Vocabulary(library, width, tokens, special, _finder(special), ends, written)


def _read(folder: Path, *, trust_remote_code: bool) -> Any:
    """A fast tokenizer of transformers. Raises NoTokenizer."""
    # Here, because grammars are also compiled where there is no need of it, and it takes a second.
    from transformers import AutoTokenizer  # noqa: PLC0415

    reader: Any = AutoTokenizer
    try:
        tokenizer: Any = reader.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except Exception as exc:
        raise NoTokenizer(
            f"the model folder has no tokenizer that can be read ({type(exc).__name__})"
        ) from exc
    if not getattr(tokenizer, "is_fast", False):
        raise NoTokenizer("the model folder has no fast tokenizer (tokenizer.json)")
    return tokenizer


def _write(tokenizer: Any) -> str:
    """With the tokens that the folder's other files add; padding and truncation are nothing to a grammar."""
    backend: Any = copy.copy(tokenizer.backend_tokenizer)
    backend.no_padding()
    backend.no_truncation()
    return str(backend.to_str())


def _library(written: str, width: int, ends: tuple[int, ...]) -> Any:
    """llguidance's tokenizer. Before 1.0, which TensorRT-LLM brings, it knows one end only: the first."""
    if _KNOWS_ENDS:
        return llguidance.LLTokenizer(written, n_vocab=width, eos_token=list(ends))
    return llguidance.LLTokenizer(written, n_vocab=width, eos_token=ends[0])


def _finder(special: dict[str, int]) -> re.Pattern[str] | None:
    # The longest first: one may begin with another.
    names = "|".join(re.escape(name) for name in sorted(special, key=len, reverse=True))
    return re.compile(f"({names})") if names else None


def _ends(folder: Path, tokenizer: Any, tokens: int) -> tuple[int, ...]:
    """All ids that end an answer, the tokenizer's own first. Those without logits end nothing."""
    found: list[Any] = [tokenizer.eos_token_id]
    for name in _SETTINGS:
        try:
            settings = read_json((folder / name).read_bytes())
        except (OSError, ValueError):
            continue
        named = (as_object(settings) or {}).get("eos_token_id")
        found += as_list(named) or [named]
    return tuple(dict.fromkeys(end for end in found if isinstance(end, int) and 0 <= end < tokens))
