"""Why a request was refused before the engine saw it: a few words, none of them the caller's."""

from __future__ import annotations

import re
import typing
from enum import StrEnum
from typing import Any

import msgspec

from protocols.errors import EngineShutdown, InvalidRequest, Overloaded, ServiceError
from protocols.requests import GenerateRequest


class RejectReason(StrEnum):
    """Every value that the label of a refusal can have."""

    MAX_LIVE = "max_live"
    OUTBOX_TOKENS = "outbox_tokens"
    INTAKE_FULL = "intake_full"
    PREPARING_FULL = "preparing_full"
    INVALID_REQUEST = "invalid_request"
    DRAINING = "draining"
    OTHER = "other"


def reject_reason_of(error: ServiceError | None) -> RejectReason:
    """What the error that refused a request stands for."""
    match error:
        case Overloaded(reason=reason) if reason in frozenset(RejectReason):
            return RejectReason(reason)
        case InvalidRequest():
            return RejectReason.INVALID_REQUEST
        case EngineShutdown():
            return RejectReason.DRAINING
        case _:
            return RejectReason.OTHER


def refused_field_of(error: ServiceError | None) -> str | None:
    """The part of the request that was wrong, as far as the name is ours: callers make up names of fields."""
    if not isinstance(error, InvalidRequest):
        return None
    if _HEADER.fullmatch(error.field):
        return error.field
    known: list[str] = []
    level = _FIELDS
    for part in re.split(r"[.\[]", error.field):
        if part not in level:
            break
        known.append(part)
        level = level[part]
    return ".".join(known) or "request"


# Names of headers are ours whole: nobody else's get there.
_HEADER = re.compile(r"x-dynamo-meta-[a-z-]{1,32}")


def _fields_of(kind: Any) -> dict[str, Any]:
    """Names of a struct's fields, each with those inside it."""
    hints = typing.get_type_hints(kind)
    return {field.encode_name: _inside(hints[field.name]) for field in msgspec.structs.fields(kind)}


def _inside(hint: Any) -> dict[str, Any]:
    kinds = [kind for kind in (hint, *typing.get_args(hint)) if isinstance(kind, type)]
    structs = [kind for kind in kinds if issubclass(kind, msgspec.Struct)]
    return _fields_of(structs[0]) if structs else {}


_FIELDS = _fields_of(GenerateRequest)
