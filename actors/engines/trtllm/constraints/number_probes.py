"""Numbers just outside of the bounds that a schema sets, to see whether they are held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from actors.engines.grammars.plain import as_list, as_object, write_json
from actors.engines.grammars.schemas import inner_schemas
from protocols.strict_json import read_json

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
# How far from a bound. What goes wrong there are the last digits, and the number of them.
_WHOLE = (*range(1, 13), 90, 100, 900)
_PARTS = ("0.1", "0.5", "0.01", "0.001")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of a number in a schema. schema: only that, as JSON text. least, most: None for no bound."""

    schema: str
    is_whole: bool
    least: Decimal | None
    most: Decimal | None
    has_least: bool
    has_most: bool

    def forbid(self, number: Decimal) -> bool:
        """Whether it lies outside."""
        below = self.least is not None and (
            number < self.least or (number == self.least and not self.has_least)
        )
        above = self.most is not None and (number > self.most or (number == self.most and not self.has_most))
        return below or above


def bounded_numbers(schema: str) -> set[Bounds]:
    """All bounds in a schema and in the schemas in it, each once."""
    found: set[Bounds] = set()
    left: list[Any] = [read_json(schema)]
    while left:
        members = as_object(left.pop()) or {}
        found |= set(_bounds_of(members))
        left += [inner for name, value in members.items() for _, _, inner in inner_schemas(name, value)]
    return found


def forbidden_numbers(bounds: Bounds) -> Iterator[str]:
    """Some that are not allowed, near the bounds, as JSON."""
    distances = [Decimal(distance) for distance in _WHOLE]
    if not bounds.is_whole:
        distances += map(Decimal, _PARTS)
    near: set[Decimal] = {Decimal(0)}
    for bound in (bounds.least, bounds.most):
        if bound is not None:
            beyond = Decimal(10) ** (max(bound.adjusted(), 0) + 1)
            near |= {bound, beyond, -beyond, bound * 10, -bound}
    numbers = near | {one + sign * distance for one in near for sign in (1, -1) for distance in distances}
    for number in sorted(numbers):
        if bounds.forbid(number) and (not bounds.is_whole or number == number.to_integral_value()):
            yield f"{number.to_integral_value() if bounds.is_whole else number.normalize():f}"


def _bounds_of(members: dict[str, Any]) -> Iterator[Bounds]:
    told = {name: members[name] for name in _BOUNDS if name in members}
    if not told or not all(isinstance(value, int | float) for value in told.values()):
        return
    types = members.get("type")
    for name in as_list(types) or [types]:
        if name in ("integer", "number"):
            numbers = {key: Decimal(str(value)) for key, value in told.items()}
            least, has_least = _tighter(numbers, "minimum", "exclusiveMinimum", larger=True)
            most, has_most = _tighter(numbers, "maximum", "exclusiveMaximum", larger=False)
            text = write_json({"type": name, **told})
            yield Bounds(text, name == "integer", least, most, has_least, has_most)


def _tighter(
    numbers: dict[str, Decimal], inclusive: str, exclusive: str, *, larger: bool
) -> tuple[Decimal | None, bool]:
    """The bound that counts where both are given, and whether it is allowed itself."""
    one, other = numbers.get(inclusive), numbers.get(exclusive)
    if one is None or other is None:
        return (one, True) if other is None else (other, False)
    if one == other:
        return other, False
    return (one, True) if (one > other) is larger else (other, False)
