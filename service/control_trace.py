"""The control route ``trace``: the stories that this worker keeps of its requests."""

from __future__ import annotations

from typing import Any

from protocols.errors import InvalidRequest
from service.telemetry.recorder import Recorder
from service.telemetry.stories import MOST_TOLD, Kept


def told_stories(recorder: Recorder, body: dict[str, Any]) -> dict[str, Any]:
    """Of requests that have ended, by an ``id`` or of those that ``which`` names. Raises InvalidRequest."""
    limit = body.get("limit", MOST_TOLD)
    if type(limit) is not int or not 1 <= limit <= MOST_TOLD:
        raise InvalidRequest("limit", limit, f"a number from 1 to {MOST_TOLD}")
    which, wanted = body.get("which", Kept.LAST), body.get("id")
    if which not in tuple(Kept) or (wanted is not None and "which" in body):
        raise InvalidRequest("which", which, f"one of {', '.join(Kept)}, or an id instead")
    if wanted is not None and not isinstance(wanted, str):
        raise InvalidRequest("id", wanted, "a text: the id of an engine, context or trace")
    stories = recorder.stories
    found = stories.select(Kept(which), limit) if wanted is None else stories.find(wanted, limit)
    return {"worker": recorder.worker, "stories": stories.as_dicts(found)}
