"""Ids and names that came from outside, before they are written anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

_LOOKS_LIKE_AN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,127}")


def shown_id(text: str) -> str:
    """The id itself, or, when it does not look like one, a digest that still tells two of them apart.

    A client chooses its request's id, so it could be a sentence, a kilobyte, or a line break with a forged
    log line after it.
    """
    if _LOOKS_LIKE_AN_ID.fullmatch(text):
        return text
    return f"sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def callers_id(headers: Mapping[str, str] | None) -> str | None:
    """The request's id as its caller sent it in a header, if he did; not to be written as it is."""
    return None if headers is None else headers.get("x-request-id")
