"""Logits processors a request asks for, by annotation: ``logits-processor:NAME`` or ``...NAME={json}``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

from protocols.errors import InvalidRequest
from protocols.spec import ProcessorEntry
from protocols.strict_json import read_json

PREFIX = "logits-processor:"
# Options are a handful of numbers; what is longer is a mistake or an attack.
LONGEST_OPTIONS = 4096
MOST_PROCESSORS = 8


def asked_processors(annotations: Iterable[str] | None, known: Collection[str]) -> tuple[ProcessorEntry, ...]:
    """In the order of the annotations; others than ours are the framework's. Raises InvalidRequest."""
    texts = [text for text in annotations or () if text.startswith(PREFIX)]
    if len(texts) > MOST_PROCESSORS:
        raise InvalidRequest("annotations", f"{len(texts)} logits processors", f"at most {MOST_PROCESSORS}")
    entries = tuple(_entry(text, known) for text in texts)
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest("annotations", PREFIX + name, "every logits processor once")
    return entries


def _entry(text: str, known: Collection[str]) -> ProcessorEntry:
    name, has_options, options = text.removeprefix(PREFIX).partition("=")
    if name not in known:
        allowed = ", ".join(PREFIX + each for each in sorted(known))
        nothing = "nothing; this worker has no logits processors (--logits-processor)"
        raise InvalidRequest("annotations", PREFIX + name, f"one of {allowed}" if known else nothing)
    if not has_options:
        return ProcessorEntry(name=name)
    return ProcessorEntry(name=name, options=_options(PREFIX + name, options))


def _options(title: str, text: str) -> dict[str, object]:
    allowed = f"{title}={{...}} with a JSON object of at most {LONGEST_OPTIONS} bytes"
    if len(text.encode(errors="replace")) > LONGEST_OPTIONS:
        raise InvalidRequest("annotations", f"{len(text)} characters of options", allowed)
    try:
        value: object = read_json(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest("annotations", text, allowed)
    return cast("dict[str, object]", value)
