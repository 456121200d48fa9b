"""Constraints that pass every check of their text, and would end or exhaust whoever compiles them."""

from __future__ import annotations

from typing import Any

from protocols.spec import Guided, GuidedKind

_LINKS, _SHORTCUT = 1_200, 50


def _chain() -> dict[str, Any]:
    """No reference is far from the first by the shortest way, but llguidance takes the longest."""
    links: dict[str, Any] = {f"{at}": {"items": {"$ref": f"#/$defs/{at + 1}"}} for at in range(_LINKS)}
    ways = [{"$ref": f"#/$defs/{at}"} for at in range(0, _LINKS, _SHORTCUT)]
    return {"anyOf": ways, "$defs": {**links, f"{_LINKS}": {"type": "null"}}}


# Two factors with a product of 400 million: their common multiples have as many states.
ENDLESS = {"allOf": [{"type": "integer", "multipleOf": factor} for factor in (19_997, 19_993)]}
OVERFLOWING = Guided(kind=GuidedKind.JSON, constraint=_chain())
SLOW = Guided(kind=GuidedKind.JSON, constraint=ENDLESS)
# Takes some 200 MB for a moment.
GREEDY = Guided(kind=GuidedKind.REGEX, constraint="((x{100}){100}){100}")
LARGE = Guided(
    kind=GuidedKind.JSON,
    constraint={
        "properties": {f"{at}": {"type": "integer", "multipleOf": 19_990 + at} for at in (1, 3, 7)},
        "required": ["1", "3", "7"],
    },
)
GOOD = Guided(kind=GuidedKind.REGEX, constraint="[a-z]+")
# As long as it may be, in a rule that never ends, and behind an answer that does: what tries the shortest
# answers only meets none of it.
_LONG = "((x{100}){100}){100}"
ENDLESS_LARK = Guided(
    kind=GuidedKind.GRAMMAR,
    constraint=f'start: "a" "z" | "b" more\nmore: GREEDY more\nGREEDY: /{_LONG}/',
)
GREEDY_LARK = Guided(
    kind=GuidedKind.GRAMMAR, constraint=f'start: "a" more\nmore: GREEDY more\nGREEDY: /{_LONG}/'
)
ENDLESS_GBNF = Guided(
    kind=GuidedKind.GRAMMAR, constraint='root ::= "a" "z" | "b" more\nmore ::= greedy more\ngreedy ::= "x"+'
)
