"""The formats of a structural tag that hold no other formats, each written as a Lark expression.

Free text is the difficulty: a lexer that reads on for as long as it can would never let go of it. So
whatever holds free text is told by what it ends (``ends``), and reads up to there, lazily. Free text
that nothing ends is "open": it has to come last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llguidance

from actors.engines.grammars.complaints import brief
from actors.engines.grammars.lark import LarkText, choice_of, joined, one_token, other_tokens
from actors.engines.grammars.limits import parser_limits
from actors.engines.grammars.plain import as_list, as_object, write_json
from actors.engines.grammars.schemas import check_schema, schema_source
from actors.engines.grammars.tag_nodes import Node
from actors.engines.grammars.texts import lark_of, regex_source
from actors.engines.grammars.vocabulary import Vocabulary
from protocols.errors import InvalidRequest


class Part(NamedTuple):
    """An expression. is_open: it ends in free text. has_end: one of the ``ends`` is in it already."""

    text: str
    is_open: bool = False
    has_end: bool = False


class LeafFormats:
    """Of one structural tag, and what all formats use to say where they begin and end.

    lark: the rules so far. embedded: grammars that the rules refer to by name.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.lark = LarkText(vocabulary)
        self.embedded: list[dict[str, str]] = []

    def free(self, node: Node, ends: tuple[str, ...], excludes: tuple[str, ...]) -> Part:
        """Free text up to one of the ends, or for ever."""
        if not ends:
            return Part(self.lark.free_text(excludes), is_open=True)
        found = [self.lark.text_until(end, excludes) for end in ends]
        texts = [text for text in found if text is not None]
        if len(texts) < len(ends):
            raise InvalidRequest(node.field, node.type, "free text whose end begins with its special token")
        return Part(choice_of(texts), has_end=True)

    def ended(self, part: Part, ends: tuple[str, ...]) -> str:
        """The part and, unless it has it already, one of the ends."""
        if part.has_end or not ends:
            return part.text
        return joined(part.text, choice_of([self.lark.fixed(end) for end in ends]))

    def going_on(self, text: str, field: str) -> str:
        """Text of a format. With its end token an answer is over: it cannot be part of a format."""
        if any(part in self.vocabulary.ends for part in self.vocabulary.parts_of(text)):
            raise InvalidRequest(field, text, "a text without a token that ends the answer")
        return text

    def boundary(self, value: Any, field: str) -> str:
        """The name of the special token that a tag begins or ends with."""
        known = self.vocabulary.find(value.get("token"))
        is_special = known in self.vocabulary.special.values()
        if known is None or not is_special or value.get("type") != "token":
            raise InvalidRequest(field, value, "a string, or a special token of the model")
        return self.vocabulary.text_of(known)

    def const_string(self, node: Node, _: tuple[str, ...]) -> Part:
        node.only("value")
        return Part(self.lark.fixed(self.going_on(node.text("value"), f"{node.field}.value")))

    def json_schema(self, node: Node, _: tuple[str, ...]) -> Part:
        node.only("json_schema", "style")
        if node.get("style", "json") != "json":
            raise node.refusal("style", "json only")
        schema, field = node.get("json_schema"), f"{node.field}.json_schema"
        if as_object(schema) is None and not isinstance(schema, bool):
            raise node.refusal("json_schema", "a JSON schema: an object or a boolean")
        check_schema(schema, field)
        self._validate(schema_source(schema, field), field, schema)
        text = "{}" if schema is True else write_json(schema)
        return Part(self.lark.rule(f"%json {text}"))

    def regex(self, node: Node, ends: tuple[str, ...]) -> Part:
        """With its end in the same terminal, where it can be: the end may look like more of it."""
        node.only("pattern")
        pattern = node.text("pattern")
        self._validate(regex_source(pattern), f"{node.field}.pattern", pattern)
        body = f"/{llguidance.regex_to_lark(pattern, '')}/"
        if ends and all(isinstance(part, str) for end in ends for part in self.vocabulary.parts_of(end)):
            return Part(
                self.lark.terminal(f"{body} {choice_of([*map(self.lark.fixed, ends)])}"), has_end=True
            )
        return Part(self.lark.terminal(body))

    def grammar(self, node: Node, _: tuple[str, ...]) -> Part:
        node.only("grammar")
        field = f"{node.field}.grammar"
        lark = lark_of(node.text("grammar"), field)
        self._validate(llguidance.LLMatcher.grammar_from_lark(lark), field, node.text("grammar"))
        name = f"embedded_{len(self.embedded)}"
        self.embedded.append({"name": name, "lark_grammar": lark})
        return Part(f"@{name}")

    def any_text(self, node: Node, ends: tuple[str, ...]) -> Part:
        node.only("excludes")
        return self.free(node, ends, node.texts("excludes"))

    def any_tokens(self, node: Node, ends: tuple[str, ...]) -> Part:
        """Tokens where the vocabulary has them and nothing but a token ends them, else text without them."""
        node.only("exclude_tokens")
        excluded = self._excluded(node)
        stops = [self.vocabulary.special.get(end) for end in ends]
        if None in stops or not all(isinstance(one, int) for one in excluded):
            texts = [one if isinstance(one, str) else self.vocabulary.text_of(one) for one in excluded]
            return self.free(node, ends, tuple(texts))
        numbers = [number for number in (*excluded, *stops) if isinstance(number, int)]
        tokens = f"{other_tokens([*numbers, *self.vocabulary.ends])}*"
        return Part(self.ended(Part(tokens), ends), is_open=not ends, has_end=bool(ends))

    def token(self, node: Node, _: tuple[str, ...]) -> Part:
        node.only("token")
        known = self.vocabulary.find(node.get("token"))
        if known is None or known in self.vocabulary.ends:
            raise node.refusal("token", "a token of the model, and none that ends the answer")
        return Part(one_token(known))

    def exclude_token(self, node: Node, _: tuple[str, ...]) -> Part:
        node.only("exclude_tokens")
        known = [number for number in self._excluded(node) if isinstance(number, int)]
        return Part(other_tokens([*known, *self.vocabulary.ends]))

    def _excluded(self, node: Node) -> list[int | str]:
        """Tokens of a list: their ids, or the text of those that the vocabulary does not have."""
        value = as_list(node.get("exclude_tokens", []))
        if value is None:
            raise node.refusal("exclude_tokens", "a list of tokens")
        return [self._known(item, f"{node.field}.exclude_tokens[{at}]") for at, item in enumerate(value)]

    def _known(self, value: Any, field: str) -> int | str:
        known = self.vocabulary.find(value)
        if known is None and not (isinstance(value, str) and value):
            raise InvalidRequest(field, value, "a token of the model, or a text")
        return value if known is None else known

    def _validate(self, source: str, field: str, value: object) -> None:
        """Find the fault here, where its path is known. Raises InvalidRequest.

        By compiling: `validate_grammar` may keep the interpreter to itself.
        """
        matcher = llguidance.LLMatcher(self.vocabulary.library, source, log_level=0, limits=parser_limits())
        if matcher.is_error():
            allowed = f"what llguidance can follow ({brief(matcher.get_error())})"
            raise InvalidRequest(field, value, allowed)
