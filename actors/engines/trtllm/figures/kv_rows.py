"""Rows about the KV cache as TensorRT-LLM serialises them, checked once: after this they can be believed.

They are JSON that another process made, of a serialiser that changes between releases: keys may be absent,
and what is there is looked at before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

MOST_HASH = 2**64 - 1
_MOST_TOKEN = 2**32 - 1
_LEAST_SIGNED = -(2**63)


class NonsenseRow(ValueError):
    """A row that cannot be true. Its text names what is wrong, never what was in it."""


class WideHash(NonsenseRow):
    """A name of a block that is no whole number of 64 bits, as KV cache manager V2 gives by default."""


class KvRow(NamedTuple):
    """One event. event_id: consecutive in its rank. window: of attention, in tokens; None where not told."""

    event_id: int
    rank: int
    window: int | None
    kind: str
    data: Mapping[str, Any]


class StoredBlock(NamedTuple):
    """One block of a chain. name: its hash, unsigned 64-bit, None where it has none.

    is_text: its tokens alone say what is in it. An image or a sound is placeholders that are the same for
    every one, and has keys or extra ids beside them.
    """

    name: int | None
    token_ids: list[int]
    cache_salt: str | None
    is_text: bool


def kv_row(row: object) -> KvRow:
    """The envelope. Raises NonsenseRow."""
    fields = _mapping(row, "a row")
    data = _mapping(fields.get("data"), "data")
    # The first is told by attention DP only.
    rank, window = fields.get("attention_dp_rank"), fields.get("window_size")
    return KvRow(
        event_id=_whole(fields.get("event_id"), "event_id"),
        rank=0 if rank is None else _whole(rank, "attention_dp_rank"),
        window=None if window is None else _whole(window, "window_size"),
        kind=_text(data.get("type"), "type") or "",
        data=data,
    )


def stored_blocks(data: Mapping[str, Any], block_tokens: int) -> list[StoredBlock]:
    """The chain of a "stored", first block first. Raises NonsenseRow, also for too many tokens in a block."""
    return [
        _stored_block(_mapping(block, "a block"), block_tokens)
        for block in _sequence(data.get("blocks"), "blocks")
    ]


def parent_of(data: Mapping[str, Any]) -> int | None:
    """The block in front of a "stored"; None at the beginning of a prompt. Raises NonsenseRow."""
    return _optional_name(data.get("parent_hash"))


def adapter_of(data: Mapping[str, Any]) -> str | None:
    """The LoRA adapter of a "stored"; None: the base model, or not told. Raises NonsenseRow."""
    return _text(data.get("lora_name"), "lora_name")


def removed_names(data: Mapping[str, Any]) -> list[int]:
    """The blocks of a "removed". Raises NonsenseRow."""
    return [_name(each) for each in _sequence(data.get("block_hashes"), "block_hashes")]


def _stored_block(block: Mapping[str, Any], block_tokens: int) -> StoredBlock:
    tokens = _sequence(block.get("tokens"), "tokens")
    if len(tokens) > block_tokens:
        raise NonsenseRow("a block has more tokens than a block")
    try:
        token_ids: list[int] = [token["token_id"] for token in tokens]
        has_extra = any(token.get("token_extra_id") for token in tokens)
    except (AttributeError, KeyError, TypeError):
        raise NonsenseRow("a token is none") from None
    if not set(map(type, token_ids)) <= {int}:
        raise NonsenseRow("a token id is no whole number")
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) <= _MOST_TOKEN):
        raise NonsenseRow("a token id is out of range")
    return StoredBlock(
        name=_optional_name(block.get("block_hash")),
        token_ids=token_ids,
        cache_salt=_text(block.get("cache_salt"), "cache_salt"),
        is_text=not has_extra and not block.get("mm_keys"),
    )


def _optional_name(value: object) -> int | None:
    return None if value is None else _name(value)


def _name(value: object) -> int:
    """Some serialisers fold hashes to signed numbers; here they are unsigned."""
    if type(value) is not int or not _LEAST_SIGNED <= value <= MOST_HASH:
        raise WideHash("a hash is no 64-bit number")
    return value & MOST_HASH


def _whole(value: object, field: str) -> int:
    if type(value) is not int or value < 0:
        raise NonsenseRow(f"{field} is no whole number")
    return value


def _text(value: object, field: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise NonsenseRow(f"{field} is no text")
    return value


def _mapping(value: object, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise NonsenseRow(f"{field} is no object")
    return cast("Mapping[str, Any]", value)


def _sequence(value: object, field: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise NonsenseRow(f"{field} is no list")
    return cast("Sequence[Any]", value)
