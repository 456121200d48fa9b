"""References of a JSON schema: to schemas of the same document, and not too many in one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from actors.engines.grammars.limits import MOST_CHAINED
from protocols.errors import InvalidRequest

ROOT = ""


class Place(NamedTuple):
    """A schema in a document. reference: its ``$ref``, if it has one.

    parts: the JSON pointers of the schemas in it that it is made of, so not of its definitions.
    """

    reference: object
    parts: tuple[str, ...]


Places = Mapping[str, Place]
"""All schemas of a document that were checked, by their JSON pointers."""


def below(pointer: str, *parts: str) -> str:
    """The JSON pointer some levels down."""
    return "/".join([pointer, *(part.replace("~", "~0").replace("/", "~1") for part in parts)])


def check_references(places: Places, field: str) -> None:
    """Raises InvalidRequest for a reference to anything but a place: what is said there was not checked.

    And for a chain of references that is too long: llguidance follows them by recursion.
    """
    targets = {
        pointer: _target(places, place.reference, field)
        for pointer, place in places.items()
        if place.reference is not None
    }
    known, level = {ROOT}, {ROOT}
    for _ in range(MOST_CHAINED + 1):
        named = {targets[part] for pointer in level for part in _parts(places, pointer) if part in targets}
        level = named - known
        known |= level
    if level:
        raise InvalidRequest(field, "$ref", f"at most {MOST_CHAINED} references that lead to one another")


def _target(places: Places, reference: object, field: str) -> str:
    if isinstance(reference, str) and reference.startswith("#"):
        pointer = unquote(reference[1:])
        if pointer in places:
            return pointer
    raise InvalidRequest(field, reference, "a $ref to a schema in the same document, such as '#/$defs/name'")


def _parts(places: Places, pointer: str) -> list[str]:
    """The schema itself and everything it is made of."""
    found = [pointer]
    for one in found:
        found += places[one].parts
    return found
