"""A structural tag as a Lark grammar: the formats that are made of other formats."""

from __future__ import annotations

from collections.abc import Callable

import llguidance

from actors.engines.grammars.lark import choice_of, joined
from actors.engines.grammars.leaf_formats import LeafFormats, Part
from actors.engines.grammars.plain import as_list, as_object, write_json
from actors.engines.grammars.tag_nodes import Node
from actors.engines.grammars.vocabulary import Vocabulary
from protocols.errors import InvalidRequest


class TagFormats:
    """Writes one structural tag."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._leaves = LeafFormats(vocabulary)
        self._writers: dict[str, Callable[[Node, tuple[str, ...]], Part]] = {
            "const_string": self._leaves.const_string,
            "json_schema": self._leaves.json_schema,
            "regex": self._leaves.regex,
            "grammar": self._leaves.grammar,
            "any_text": self._leaves.any_text,
            "any_tokens": self._leaves.any_tokens,
            "token": self._leaves.token,
            "exclude_token": self._leaves.exclude_token,
            "sequence": self._sequence,
            "or": self._or,
            "tag": self._tag,
            "triggered_tags": self._triggered_tags,
            "tags_with_separator": self._tags_with_separator,
            "optional": self._repeated,
            "star": self._repeated,
            "plus": self._repeated,
            "repeat": self._repeated,
        }

    def source(self, node: Node) -> str:
        """A grammar of llguidance for this format. Raises InvalidRequest."""
        lark = self._leaves.lark.source(self._write(node, ()).text)
        if not self._leaves.embedded:
            return llguidance.LLMatcher.grammar_from_lark(lark)
        grammars = [{"name": "structural_tag", "lark_grammar": lark}, *self._leaves.embedded]
        return write_json({"grammars": grammars})

    def _write(self, node: Node, ends: tuple[str, ...]) -> Part:
        writer = self._writers.get(node.type) if isinstance(node.type, str) else None
        if writer is None:
            raise node.refusal("type", f"one of {', '.join(self._writers)}")
        return writer(node, ends)

    def _closed(self, node: Node) -> str:
        """Something that another thing can follow."""
        part = self._write(node, ())
        if part.is_open:
            raise InvalidRequest(
                node.field, node.type, "something that ends: free text comes last, or in a tag with an end"
            )
        return part.text

    def _sequence(self, node: Node, ends: tuple[str, ...]) -> Part:
        node.only("elements")
        *others, last = node.children("elements")
        texts = [self._closed(child) for child in others]
        part = self._write(last, ends)
        return part._replace(text=joined(*texts, part.text))

    def _or(self, node: Node, ends: tuple[str, ...]) -> Part:
        node.only("elements")
        parts = [self._write(child, ends) for child in node.children("elements")]
        texts = [self._leaves.ended(part, ends) or '""' for part in parts]
        return Part(choice_of(texts), any(part.is_open for part in parts), has_end=bool(ends))

    def _repeated(self, node: Node, _: tuple[str, ...]) -> Part:
        node.only("content", *(("min", "max") if node.type == "repeat" else ()))
        body = self._closed(node.child("content")) or '""'
        if node.type != "repeat":
            return Part(f"({body}){ {'optional': '?', 'star': '*', 'plus': '+'}[node.type] }")
        least, most = node.number("min"), node.number("max")
        if least < 0 or (most != -1 and most < max(least, 1)):
            raise node.refusal("max", "at least min and 1, or -1 for no limit")
        return Part(f"({body}){{{least},{'' if most == -1 else most}}}")

    def _tag(self, node: Node, ends: tuple[str, ...]) -> Part:
        begin = self._leaves.lark.fixed(self._begin(node))
        return self._rest_of_tag(node, begin, ends)

    def _rest_of_tag(self, node: Node, begin: str, ends: tuple[str, ...]) -> Part:
        """A tag from behind its beginning on. One without an end of its own ends as what is around it."""
        own = self._ends(node)
        content = self._write(node.child("content"), own or ends)
        if not own:
            return content._replace(text=joined(begin, content.text))
        return Part(joined(begin, self._leaves.ended(content, own)))

    def _begin(self, node: Node) -> str:
        if node.type != "tag":
            raise node.refusal("type", "tag")
        node.only("begin", "content", "end")
        begin, field = node.get("begin"), f"{node.field}.begin"
        text = node.text("begin") if as_object(begin) is None else self._leaves.boundary(begin, field)
        return self._leaves.going_on(text, field)

    def _ends(self, node: Node) -> tuple[str, ...]:
        end, field = node.get("end"), f"{node.field}.end"
        if as_list(end) is not None:
            return tuple(self._leaves.going_on(text, field) for text in node.texts("end", is_needed=True))
        text = node.text("end") if as_object(end) is None else self._leaves.boundary(end, field)
        return (self._leaves.going_on(text, field),) if text else ()

    def _triggered_tags(self, node: Node, ends: tuple[str, ...]) -> Part:
        """Free text, and from each trigger on one of its tags."""
        node.only("triggers", "tags", "at_least_one", "stop_after_first", "excludes")
        excludes = node.texts("excludes")
        rests: dict[str, list[str]] = {}
        for tag in node.children("tags", "tag"):
            trigger, begin = self._trigger_of(tag, node.texts("triggers", is_needed=True))
            rest = self._rest_of_tag(tag, self._leaves.lark.fixed(begin[len(trigger) :]), ())
            if rest.is_open:
                raise InvalidRequest(tag.field, "tag", "a tag with an end, or with content that ends")
            rests.setdefault(trigger, []).append(self._leaves.lark.rule(rest.text or '""'))
        first = choice_of(
            [joined(self._leaves.lark.fixed(at), choice_of(rest)) for at, rest in rests.items()]
        )
        later = choice_of(
            [
                joined(self._leaves.free(node, (at,), excludes).text, choice_of(rest))
                for at, rest in rests.items()
            ]
        )
        return self._placed(node, first, later, ends)

    def _placed(self, node: Node, first: str, later: str, ends: tuple[str, ...]) -> Part:
        """How often tags come. The first of at least one comes at once, as in the original."""
        tail = self._leaves.free(node, ends, node.texts("excludes"))
        is_needed, is_single = node.flag("at_least_one"), node.flag("stop_after_first")
        if is_needed and is_single:
            return Part(first)
        if is_single:
            return tail._replace(text=choice_of([self._leaves.ended(Part(later), ends), tail.text]))
        return tail._replace(text=joined(first if is_needed else "", f"({later})*", tail.text))

    def _trigger_of(self, tag: Node, triggers: tuple[str, ...]) -> tuple[str, str]:
        """The trigger of a tag, and how the tag begins. A special token is never cut by a trigger."""
        begin = self._begin(tag)
        found = [trigger for trigger in triggers if begin.startswith(trigger)]
        if len(found) != 1:
            raise tag.refusal("begin", "a text that begins with exactly one of the triggers")
        read = ""
        for part in self._leaves.vocabulary.parts_of(begin):
            name = part if isinstance(part, str) else self._name_of(part)
            if isinstance(part, int) and len(read) < len(found[0]) < len(read) + len(name):
                return read + name, begin
            read += name
        return found[0], begin

    def _name_of(self, number: int) -> str:
        return next(name for name, known in self._leaves.vocabulary.special.items() if known == number)

    def _tags_with_separator(self, node: Node, _: tuple[str, ...]) -> Part:
        node.only("tags", "separator", "at_least_one", "stop_after_first")
        one = choice_of([self._closed(tag) or '""' for tag in node.children("tags", "tag")])
        tags = self._leaves.lark.rule(one)
        if not node.flag("stop_after_first"):
            tags = f"{tags} ({joined(self._separator(node), tags)})*"
        return Part(tags if node.flag("at_least_one") else f"({tags})?")

    def _separator(self, node: Node) -> str:
        return self._leaves.lark.fixed(
            self._leaves.going_on(node.text("separator"), f"{node.field}.separator")
        )
