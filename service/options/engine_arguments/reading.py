"""Reads the arguments that this worker needs to know itself. One that was refused counts as not given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard, cast

from service.options.engine_arguments.known_values import READ_HERE
from service.options.engine_arguments.tree import Tree, value_at


@dataclass(frozen=True, slots=True)
class Reader:
    """Typed values out of the final tree, of the fields in `READ_HERE` alone."""

    tree: Tree

    def integer(self, path: str, default: int) -> int:
        """A whole number; ``default`` where there is none."""
        found = self.optional_integer(path)
        return default if found is None else found

    def optional_integer(self, path: str) -> int | None:
        """A whole number, or None."""
        value = value_at(self.tree, path)
        return value if isinstance(value, int) and READ_HERE[path].holds(value) else None

    def boolean(self, path: str) -> bool:
        """A yes or no; no where there is none."""
        return value_at(self.tree, path) is True


def is_list_of_texts(value: object) -> TypeGuard[list[str]]:
    """Whether nothing but texts is in it, or nothing at all."""
    return isinstance(value, list) and all(isinstance(part, str) for part in cast("list[object]", value))
