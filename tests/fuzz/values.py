"""Values that somebody might send, from nearly right to absurd. Everything comes from one random source."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from msgspec import inspect

if TYPE_CHECKING:
    from random import Random

    from tests.fuzz.schema import Leaf

# Stands in every text that is generated; a log line that has it shows content.
SECRET = "zq7secret"

# Far beyond what Python recurses into; building more takes the collector's time, not the worker's.
_DEEPEST = 20_000

TEXTS = (
    "", SECRET, f"{SECRET} \x00\x1b[31m\r\n", "\ud800" + SECRET, SECRET + "\U0001f600" * 7, "null", "NaN",
    "-1", "٣",
    f"{SECRET}` - at `$.sampling_options.n", "../../etc/passwd", "%s%n{0}{", SECRET * 20,
)  # fmt: skip
_INTEGERS = (
    -1, 0, 1, 2, 3, 7, 63, 64, 127, 128, 129, 255, 256, 31_999, 32_000, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
    2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**31), -(2**63), -(2**64), 10**30, 10**400, 10**5000,
)  # fmt: skip
_FLOATS = (
    0.0, -0.0, 1e-300, 1e-7, 0.01, 0.5, 0.9999, 1.0, 1.0001, 2.0, -2.0, 2.0001, 100.0, 1000.0, 1000.1, 1e38,
    1e308,
    -1.0, math.nan, math.inf, -math.inf,
)  # fmt: skip
# A value of another kind than the schema's, which no reading of JSON makes right.
_WRONG: dict[type, tuple[Any, ...]] = {
    inspect.IntType: (True, False, 1.5, "7", [], {}, [1], math.nan),
    inspect.FloatType: (True, "0.5", [], {}, [0.5]),
    inspect.BoolType: (0, 1, "true", [], {}, 1.0),
    inspect.StrType: (7, 1.5, True, [], {}, [SECRET]),
    inspect.ListType: ("1,2", 7, True, {"0": 1}, 1.5, b"abc"),
    inspect.DictType: ([], "{}", 7, True, [[SECRET, 1]]),
    inspect.StructType: ([], "{}", 7, True, [[SECRET, 1]]),
}


def wrong_kind(rng: Random, kind: Any) -> Any:
    """A value of a kind that the field does not take: to be refused by name."""
    if isinstance(kind, inspect.ListType) and rng.random() < 0.5:
        items = [right(rng, kind.item_type) for _ in range(rng.randrange(4))]
        items.insert(rng.randint(0, len(items)), rng.choice((None, *_WRONG[type(kind.item_type)])))
        return items
    return rng.choice(_WRONG[type(kind)])


def out_of_bounds(rng: Random, kind: inspect.IntType) -> int:
    """One beyond an end of its range, or far beyond."""
    below = [] if kind.ge is None else [kind.ge - 1, -(2**40), -(10**30)]
    above = [] if kind.le is None else [kind.le + 1, 10**30]
    return rng.choice([*below, *above])


def right(rng: Random, kind: Any) -> Any:
    """Of the right kind and within the schema's own bounds; what it means may be nonsense."""
    match kind:
        case inspect.IntType():
            least = 0 if kind.ge is None else kind.ge
            most = 2**31 if kind.le is None else kind.le
            return rng.choice([least, least + 1, 3, rng.randint(least, 40), rng.randint(least, most)])
        case inspect.FloatType():
            return rng.choice([0.0, 0.5, 1.0, 1, rng.uniform(-2.0, 2.0), rng.uniform(0.0, 1.0)])
        case inspect.BoolType():
            return rng.random() < 0.5
        case inspect.StrType():
            return rng.choice(TEXTS)
        case inspect.ListType():
            return [right(rng, kind.item_type) for _ in range(rng.choice((0, 1, 2, 5)))]
        case inspect.StructType():
            # None of its fields has to be there.
            return {}
        case _:
            return {rng.choice(TEXTS): anything(rng) for _ in range(rng.randrange(3))}


def anything(rng: Random, depth: int = 0) -> Any:
    """Whatever JSON can say, and Python's odd corners beside it."""
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice(_INTEGERS)
    if kind == 2:
        return rng.choice(_FLOATS)
    if kind in (3, 4):
        return rng.choice(TEXTS)
    if kind == 5:
        return {rng.choice(TEXTS): anything(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]


def giant(rng: Random) -> Any:
    """Too much of something: text, items, keys, digits, depth."""
    size = rng.choice((1_000, 20_000, 300_000))
    match rng.randrange(7):
        case 0:
            return SECRET * (size // len(SECRET))
        case 1:
            return [rng.choice((1, 5, 31_999))] * size
        case 2:
            return {f"k{i}": i for i in range(size // 50)}
        case 3:
            return [SECRET] * (size // 20)
        case 4:
            return 10**size
        case 5:
            return deep(min(size, _DEEPEST), in_lists=False)
        case _:
            return deep(min(size, _DEEPEST), in_lists=True)


def deep(levels: int, *, in_lists: bool) -> Any:
    """As many levels of the same."""
    value: Any = SECRET
    for _ in range(levels):
        value = [value] if in_lists else {"a": value}
    return value


def integer(rng: Random) -> int:
    """Any whole number, round and odd ones."""
    return rng.choice(_INTEGERS)


def number(rng: Random) -> float:
    """Any number, also those that are none."""
    return rng.choice(_FLOATS)


def text(rng: Random) -> str:
    """Any text."""
    return rng.choice(TEXTS)


def name(rng: Random) -> str:
    """A key that no schema has. Keys are told to the log by name, so no secret is in it."""
    return rng.choice(
        ("unknown", "Max_Tokens", "n ", "", "x" * 300, "a.b[0]", "__class__", "тест", "\x00", "`$.n`")
    )


def one_of_schema(rng: Random, leaf: Leaf) -> Any:
    """Of the right kind for a field, with a bias to the ends of what it may be."""
    if isinstance(leaf.type, inspect.IntType):
        return integer(rng)
    if isinstance(leaf.type, inspect.FloatType):
        return number(rng)
    return right(rng, leaf.type)


def as_text(value: Any) -> str:
    """Any generated value as something a person can read back: ``repr``, shortened where it is giant."""
    try:
        shown = json.dumps(value, default=repr)
    except (ValueError, RecursionError, UnicodeEncodeError):
        shown = f"<{type(value).__name__} that JSON cannot say>"
    return shown if len(shown) <= 20_000 else f"{shown[:20_000]}… ({len(shown)} characters)"
