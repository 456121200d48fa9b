"""What asks an engine to run foreign code: constraints and logits processors, right and wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tests.fuzz.values import SECRET, anything, giant

if TYPE_CHECKING:
    from random import Random

# Constraints in every form, right and wrong, cheap and ruinous.
_REGEXES = (
    "[a-e]{1,3}!", "yes|no", "(", "[", "a{2,1}", "(a*)*b", "(?=a)b", "\\1", "a{100000}", "(a{1000}){1000}",
    "",
    "\ud800", ".*" * 200, "((((((((((a|b)*)*)*)*)*)*)*)*)*)*", "\\p{Greek}+", SECRET, "[^\\x00-\\x{10FFFF}]",
)  # fmt: skip
_SCHEMAS: tuple[Any, ...] = (
    {"type": "object"}, {"type": "integer", "minimum": 1, "maximum": 5}, {"type": "nonsense"}, {}, True,
    False, 7,
    {"enum": []}, {"enum": ["a", "b"]}, {"$ref": "#"}, {"$ref": "http://127.0.0.1:1/x"},
    {"$ref": "#/$defs/none"},
    {"not": {}}, {"type": "string", "pattern": "("}, {"multipleOf": 0}, {"multipleOf": 19_997,
    "type": "integer"},
    {"allOf": [{"multipleOf": 19_997}, {"multipleOf": 19_991}], "type": "integer"},
    {"type": "array", "minItems": 10**9, "items": {}}, {"minLength": 5, "maxLength": 2, "type": "string"},
    {"properties": {f"p{i}": {"type": "string"} for i in range(700)}}, {"const": SECRET},
    {"minimum": math.nan},
    {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, '{"type":"object","type":"string"}', "{", "null",
    f'"{SECRET}"',
    {"properties": []}, {"required": "a"}, {"type": ["object", 3]}, {"enum": [math.inf]}, {"\ud800": 1},
)  # fmt: skip
_GRAMMARS = (
    'start: "a" "b"', "start: a", 'start: "a"+', "root ::= \"x\"", "start: start", "", "%llguidance {}",
    "\x00",
    'start: /(/', 'start: "a" [stop="b"]', "start: %json {\"type\": \"nonsense\"}", "a" * 70_000,
    "start: <zq>",
    "\n".join([f'r{i}: r{i + 1}' for i in range(600)] + ['r600: "a"', "start: r0"]),
)  # fmt: skip
_TAGS: tuple[Any, ...] = (
    {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}},
    {"type": "structural_tag", "format": {"type": "nonsense"}}, {"type": "structural_tag"}, {}, "x", [],
    {"structures": [], "triggers": []}, {"type": "structural_tag", "format": {"type": "any_text"}},
    {"type": "structural_tag", "format": {"type": "repeat", "min": 10**9, "max": 1,
    "format": {"type": "any_text"}}},
)  # fmt: skip
_CHOICES: tuple[Any, ...] = (
    ["yes", "no"], [], [""], ["a"] * 1001, [SECRET, 7], "yes", {"yes": 1}, ["\ud800"], ["a" * 70_000], [[]],
    ["ab", "a"],
)  # fmt: skip


def guided(rng: Random) -> Any:
    """A group of guided decoding."""
    forms: dict[str, Any] = {
        "json": rng.choice(_SCHEMAS),
        "regex": rng.choice(_REGEXES),
        "choice": rng.choice(_CHOICES),
        "grammar": rng.choice(_GRAMMARS),
        "structural_tag": rng.choice(_TAGS),
        "backend": rng.choice(("xgrammar", 7)),
        "whitespace_pattern": rng.choice(("[ ]", 7, None)),
    }
    names = rng.sample(sorted(forms), k=rng.choice((1, 1, 1, 1, 2, 3)))
    chosen = {each: forms[each] for each in names}
    if rng.random() < 0.1:
        chosen[names[0]] = rng.choice((anything, giant))(rng)
    return chosen


def annotation(rng: Random, processors: tuple[str, ...]) -> str:
    """One that means a logits processor, or nearly, or something else of the framework's."""
    known = rng.choice((*processors, "none-such", "", SECRET))
    options = rng.choice(
        ("", "={}", "={", "=[]", "=null", '={"a": NaN}', '={"a":1,"a":2}', '={"temperature": 0.5}',
        '={"temperature": -1}',
         '={"temperature": "x"}', "={" + '"a":' * 900 + "1" + "}" * 900, "=" + "[" * 4000,
         '={"a":"' + "x" * 5000 + '"}',
         '={"\\ud800": 1}', "=\ud800")
    )  # fmt: skip
    ours = f"logits-processor:{known}{options}"
    return rng.choice((ours, ours, ours, "query_instance_id", "token_ids", "", "logits-processor", SECRET))
