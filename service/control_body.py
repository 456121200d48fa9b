"""What the body of a control route may have."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from protocols.errors import InvalidRequest

# Who may call is for every route the same question.
_TOKEN = "token"  # noqa: S105


def check_keys(body: Iterable[str], keys: Collection[str]) -> None:
    """Raises InvalidRequest for a key that means nothing: whoever wrote it expects that it does."""
    for key in body:
        if key not in (*keys, _TOKEN):
            raise InvalidRequest("key", key, f"one of {', '.join((*keys, _TOKEN))}")
