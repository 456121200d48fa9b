"""The fields of a hand-off, one reader each: JSON in, what TensorRT-LLM takes out, or a refusal.

A prefill worker wrote them, a frontend passed them on, and what comes of them goes into compiled code of
an engine that others share: nothing is taken as it comes.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

# Numbers of tokens are small: one first token, or as many as a draft model guessed right.
_MOST_TOKENS = 1024
_MOST_CANDIDATES = 1024
_MOST_TOKEN_ID = 2**32 - 1
# Ids of requests are signed where the global ones are made, unsigned where an engine counts its own.
_MOST_ID = 2**64 - 1
# An address for each process of the prefill engine; the largest have some hundred.
_MOST_STATE_BYTES = 4 * 1024 * 1024
_LONGEST_TEXT = 1024
_MOST_RANK = 65_535
_HASH_NUMBERS = 8
_MOST_HASHES = 1024
# Usage is a handful of counts, with one group in it.
_MOST_COUNTS = 64
# What stands for minus infinity, which JSON has not.
LEAST_LOGPROB = -9999.0

Reader = Callable[[object], Any]
"""Raises Refused."""


class Refused(Exception):
    """A value that is not accepted. The text says what is; ``value`` was found, at ``path`` in the field."""

    def __init__(self, value: object, allowed: str, path: str = "") -> None:
        self.value = value
        self.allowed = allowed
        self.path = path
        super().__init__(allowed)


def read_type(value: object) -> str:
    """What the prefill worker did of the request: its prompt."""
    if isinstance(value, str) and value.lower() in ("context_only", "generation_only"):
        return value.lower()
    raise Refused(value, "context_only or generation_only")


def read_tokens(value: object) -> list[int]:
    """Token ids."""
    return _listed(value, _MOST_TOKENS, _token)


def read_logprobs(value: object) -> list[dict[int, tuple[float, int | None]] | float]:
    """For each first token its candidates, by token id: log-probability and rank; or one number."""
    return _listed(value, _MOST_TOKENS, _position)


def read_id(value: object) -> int:
    """The id of a request."""
    return _number(value, 0, _MOST_ID, "the id of a request")


def read_rank(value: object) -> int:
    """An attention-DP rank of the prefill engine."""
    return _number(value, 0, _MOST_RANK, "a rank")


def read_style(value: object) -> int:
    """Who heard of the request first. A decode worker of ours is asked when the prompt has been computed."""
    if value == 0 and not isinstance(value, bool):
        return 0
    raise Refused(value, "0: the prefill comes first")


def read_state(value: object) -> bytes:
    """Where the KV cache lies, as the prefill engine describes it: base64."""
    most = 4 * math.ceil(_MOST_STATE_BYTES / 3)
    if not isinstance(value, str) or len(value) > most:
        raise Refused(_size_of(value), f"base64 of at most {_MOST_STATE_BYTES} bytes")
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise Refused(_size_of(value), "base64") from None


def read_endpoint(value: object) -> str:
    """An address of the prefill engine. One that leads nowhere would hold up an engine with all it serves."""
    allowed = "an address with host and port, such as tcp://host:1234"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise Refused(value, allowed)
    if len(value) > _LONGEST_TEXT:
        raise Refused(_size_of(value), allowed)
    try:
        parts = urlsplit(value if "://" in value else f"//{value}")
        is_usable = bool(parts.hostname) and bool(parts.port)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise Refused(value, allowed)
    return value


def read_conversation(value: object) -> str:
    """The caller's session."""
    allowed = f"text of at most {_LONGEST_TEXT} characters"
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT:
        raise Refused(value, allowed)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(ascii(value), "text of whole characters") from None
    return value


def read_usage(value: object) -> dict[str, Any]:
    """Counts by name, some of them in groups."""
    return _counts(value, is_group_allowed=True)


def read_hashes(value: object) -> list[list[int]]:
    """Names of pictures and sounds in the prompt."""
    return _listed(value, _MOST_HASHES, _hash)


def read_nothing(value: object) -> None:
    """What no text has: tensors, and handles of a device's memory."""
    raise Refused(type(value).__name__, "nothing: tensors are not handed over")


def _listed(value: object, most: int, read: Reader) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Refused(value, f"a list of at most {most}")
    items = cast("list[object]", value)
    if len(items) > most:
        raise Refused(f"{len(items)} of them", f"a list of at most {most}")
    found: list[Any] = []
    for place, item in enumerate(items):
        try:
            found.append(read(item))
        except Refused as exc:
            raise Refused(exc.value, exc.allowed, f"[{place}]{exc.path}") from None
    return found


def _number(value: object, least: int, most: int, what: str) -> int:
    if type(value) is int and least <= value <= most:
        return value
    raise Refused(value, f"{what}, a whole number from {least} to {most}")


def _token(value: object) -> int:
    return _number(value, 0, _MOST_TOKEN_ID, "a token id")


def _position(value: object) -> dict[int, tuple[float, int | None]] | float:
    if not isinstance(value, list | tuple):
        return _logprob(value)
    candidates = _listed(cast("list[object]", value), _MOST_CANDIDATES, _candidate)
    return {token: (logprob, rank) for token, logprob, rank in candidates}


def _candidate(value: object) -> tuple[int, float, int | None]:
    entry = _mapping(value)
    if entry is None or not {"token_id", "logprob"} <= set(entry) <= {"token_id", "logprob", "rank"}:
        raise Refused(type(value).__name__, "an object with token_id, logprob and rank")
    rank = entry.get("rank")
    return (
        _token(entry["token_id"]),
        _logprob(entry["logprob"]),
        None if rank is None else _number(rank, 0, _MOST_TOKEN_ID, "a rank"),
    )


def _logprob(value: object) -> float:
    """Null is what JSON makes of minus infinity on its way."""
    if value is None:
        return LEAST_LOGPROB
    if not _is_finite(value):
        raise Refused(value, "a log-probability: a finite number")
    return float(cast("float", value))


def _hash(value: object) -> list[int]:
    numbers = _listed(
        value, _HASH_NUMBERS, lambda item: _number(item, -(2**31), 2**32 - 1, "a part of a hash")
    )
    if len(numbers) != _HASH_NUMBERS:
        raise Refused(value, f"a hash of {_HASH_NUMBERS} numbers")
    return numbers


def _counts(value: object, *, is_group_allowed: bool) -> dict[str, Any]:
    counts = _mapping(value)
    if counts is None or len(counts) > _MOST_COUNTS:
        raise Refused(type(value).__name__, f"an object with at most {_MOST_COUNTS} counts")
    found: dict[str, Any] = {}
    for name, count in counts.items():
        if not isinstance(name, str) or not name.isidentifier() or len(name) > _LONGEST_TEXT:
            raise Refused(name, "names of counts")
        if is_group_allowed and _mapping(count) is not None:
            found[name] = _counts(count, is_group_allowed=False)
        elif count is None or _is_finite(count):
            found[name] = count
        else:
            raise Refused(count, "a number", f".{name}")
    return found


def _mapping(value: object) -> Mapping[object, object] | None:
    return cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None


def _is_finite(value: object) -> bool:
    """Whether this is a number that fits into 64 bits, be it as a fraction."""
    if type(value) is int:
        return abs(value) <= _MOST_ID
    return type(value) is float and math.isfinite(value)


def _size_of(value: object) -> str:
    return f"{len(value)} characters" if isinstance(value, str) else type(value).__name__
