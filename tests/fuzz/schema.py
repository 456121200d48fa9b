"""The request's schema as a list of leaves: where each field is, and what msgspec says it must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import inspect

from protocols.requests import GenerateRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Leaf:
    """One field. group: the key it lies in, None at the top. type: without its ``None``."""

    group: str | None
    name: str
    type: Any

    @property
    def path(self) -> str:
        return self.name if self.group is None else f"{self.group}.{self.name}"

    @property
    def takes_anything(self) -> bool:
        return isinstance(self.type, inspect.AnyType)

    @property
    def has_bounds(self) -> bool:
        return isinstance(self.type, inspect.IntType) and (
            self.type.ge is not None or self.type.le is not None
        )


def _leaves() -> Iterator[Leaf]:
    for field in _fields(GenerateRequest):
        kind = _without_none(field.type)
        if isinstance(kind, inspect.StructType):
            for inner in kind.fields:
                yield Leaf(field.encode_name, inner.encode_name, _without_none(inner.type))
        else:
            yield Leaf(None, field.encode_name, kind)


def _groups() -> Iterator[tuple[str, bool]]:
    for field in _fields(GenerateRequest):
        kind = _without_none(field.type)
        if isinstance(kind, inspect.StructType):
            yield field.encode_name, bool(kind.cls.__struct_config__.forbid_unknown_fields)


def _fields(struct: type) -> tuple[inspect.Field, ...]:
    kind = inspect.type_info(struct)
    assert isinstance(kind, inspect.StructType)
    return kind.fields


def _without_none(kind: Any) -> Any:
    if isinstance(kind, inspect.UnionType):
        (kind,) = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    return kind


LEAVES: tuple[Leaf, ...] = tuple(_leaves())
"""Every field of a request, also those of its groups. A field that is added is attacked at once."""

GROUPS: dict[str, bool] = dict(_groups())
"""Groups of fields; whether a key that is not known must be refused."""
