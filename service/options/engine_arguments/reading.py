"""Reads the arguments that this worker needs to know itself, by type and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard, cast

from service.options.engine_arguments.tree import Tree, find, given_by, inside, place, plain, value_at
from service.options.values import Secret

if TYPE_CHECKING:
    from service.options.errors import Complaints


@dataclass(frozen=True, slots=True)
class Reader:
    """Typed values out of the final tree; what has another type is complained about by name."""

    tree: Tree
    complaints: Complaints

    def integer(self, path: str, default: int, minimum: int = 1) -> int:
        """A whole number; ``default`` where there is none."""
        found = self.optional_integer(path, minimum)
        return default if found is None else found

    def optional_integer(self, path: str, minimum: int = 1) -> int | None:
        """A whole number, or None."""
        value = value_at(self.tree, path)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
            return value
        self._refuse(path, value, f"allowed: a whole number from {minimum} up")
        return None

    def boolean(self, path: str, *, default: bool = False) -> bool:
        """A yes or no; ``default`` where there is none."""
        value = value_at(self.tree, path)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self._refuse(path, value, "allowed: true or false")
        return default

    def text(self, path: str) -> str | None:
        """A text, or None."""
        value = value_at(self.tree, path)
        if value is None or isinstance(value, str):
            return value
        self._refuse(path, value, "allowed: a text")
        return None

    def check_texts(self, path: str) -> None:
        """A list of texts, or nothing at all."""
        value: object = value_at(self.tree, path)
        if value is not None and not is_list_of_texts(value):
            self._refuse(path, value, "allowed: a list of texts")

    def check_variables(self, path: str) -> None:
        """Names with a text each, or nothing at all. Values are never shown: they may be passwords."""
        node = find(self.tree, path)
        variables = inside(node)
        if variables is None:
            if node is not None and plain(node) is not None:
                self._refuse(path, Secret.MASK, "allowed: an object of names, with a text for each")
            return
        for name, value in variables.items():
            if not isinstance(plain(value), str):
                here = f"{path}.{name}"
                self._refuse(here, Secret.MASK, "allowed: a text; put it into quotes")

    def check_rising(self, path: str) -> None:
        """A list of numbers, each above the one before it, or nothing at all."""
        value = value_at(self.tree, path)
        if value is not None and not _is_rising(value):
            self._refuse(path, value, "allowed: a list of numbers, each above the one before it")

    def check_share(self, path: str) -> None:
        """A part of a whole, 0 to 1, or nothing at all."""
        value = value_at(self.tree, path)
        if value is None:
            return
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            self._refuse(path, value, "allowed: a number from 0 to 1")

    def where(self, path: str) -> str:
        """Who gave it; "" for nobody."""
        node = find(self.tree, path)
        return "" if node is None else given_by(node)

    def _refuse(self, path: str, value: object, allowed: str) -> None:
        self.complaints.refuse(place(self.where(path), path), value, allowed)


def is_list_of_texts(value: object) -> TypeGuard[list[str]]:
    """Whether nothing but texts is in it, or nothing at all."""
    return isinstance(value, list) and all(isinstance(part, str) for part in cast("list[object]", value))


def _is_rising(value: object) -> bool:
    numbers = cast("list[object]", value) if isinstance(value, list) else []
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers):
        return False
    return bool(numbers) and all(low < high for low, high in pairwise(cast("list[float]", numbers)))
