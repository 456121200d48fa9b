"""One format inside a structural tag: its fields, checked, and the path to it for refusals."""

from __future__ import annotations

from typing import Any

from actors.engines.grammars.plain import as_list, as_object, as_texts
from protocols.errors import InvalidRequest


class Node:
    """An object with a ``type``. Everything raises InvalidRequest with the path of what is wrong."""

    def __init__(self, value: Any, field: str, default_type: str | None = None) -> None:
        self.field = field
        fields = as_object(value)
        if fields is None:
            raise InvalidRequest(field, value, "an object with a type")
        self._fields = fields
        self.type: Any = fields.get("type", default_type)

    @property
    def plain(self) -> dict[str, Any]:
        """The object itself."""
        return self._fields

    def refusal(self, key: str, allowed: str) -> InvalidRequest:
        """The error for one field of this format."""
        return InvalidRequest(f"{self.field}.{key}", self._fields.get(key), allowed)

    def only(self, *keys: str) -> None:
        """Refuse every other field: none is passed over."""
        for key in self._fields:
            if key != "type" and key not in keys:
                raise InvalidRequest(self.field, key, f"only {', '.join(('type', *keys))}")

    def get(self, key: str, default: Any = None) -> Any:
        """A field as it came."""
        return self._fields.get(key, default)

    def text(self, key: str) -> str:
        """A string that must be there; may be empty."""
        value = self._fields.get(key)
        if not isinstance(value, str):
            raise self.refusal(key, "a string")
        return value

    def texts(self, key: str, *, is_needed: bool = False) -> tuple[str, ...]:
        """A list of strings, none of them empty."""
        value = as_texts(self._fields.get(key, []))
        if value is None:
            raise self.refusal(key, "a list of strings that are not empty")
        if is_needed and not value:
            raise self.refusal(key, "at least one")
        return tuple(value)

    def flag(self, key: str) -> bool:
        """True or false; false when it is missing."""
        value = self._fields.get(key, False)
        if not isinstance(value, bool):
            raise self.refusal(key, "true or false")
        return value

    def number(self, key: str) -> int:
        """An integer that must be there."""
        value = self._fields.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refusal(key, "an integer")
        return value

    def child(self, key: str) -> Node:
        """The format in a field."""
        return Node(self._fields.get(key), f"{self.field}.{key}")

    def children(self, key: str, default_type: str | None = None) -> list[Node]:
        """The formats in a list that must not be empty."""
        value = as_list(self._fields.get(key))
        if not value:
            raise self.refusal(key, "a list with at least one format")
        return [Node(item, f"{self.field}.{key}[{at}]", default_type) for at, item in enumerate(value)]
