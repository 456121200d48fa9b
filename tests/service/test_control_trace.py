"""The control route ``trace``: which stories it tells, and what is in none of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from dynamo.llm.exceptions import InvalidArgument

from service.telemetry.recorder import RecorderSettings, build_recorder
from tests.doubles.callers import wire_request

if TYPE_CHECKING:
    from tests.service.conftest import OpenWorker


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [3, 2, 1]),
        ({"which": "last", "limit": 2}, [3, 2]),
        ({"which": "failed"}, []),
        ({"id": "2"}, [2]),
        ({"id": "nobody"}, []),
    ],
)
def test_the_trace_route_shows_stories_without_content(
    open_worker: OpenWorker, asked: dict[str, object], expected: list[int]
) -> None:
    """Newest first, as JSON, with no prompt and no token of an answer."""
    recorder = build_recorder(
        RecorderSettings(engine="synthetic", framework_version="0", version="0", environ={})
    )
    with open_worker(recorder=recorder) as worker:
        worker.open()
        for _ in range(3):
            worker.generate(wire_request([31_337], max_tokens=2)).read_to_end()
        told = worker.control("trace", **asked)
        assert told["worker"] == recorder.worker
        stories = told["stories"]
        assert [story["engine_id"] for story in stories] == expected
        text = json.dumps(stories, allow_nan=False)
        assert "31337" not in text
        assert "1001" not in text


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"which": "nobody"}, "which"),
        ({"which": None}, "which"),
        ({"which": []}, "which"),
        ({"which": "last", "id": "1"}, "which"),
        ({"id": 1}, "id"),
        ({"id": {"a": 1}}, "id"),
        ({"limit": 0}, "limit"),
        ({"limit": 65}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": "2"}, "limit"),
    ],
)
def test_the_trace_route_refuses_by_name_what_it_does_not_know(
    open_worker: OpenWorker, asked: dict[str, object], field: str
) -> None:
    """Nothing that was asked for is left out without a word."""
    with open_worker() as worker:
        worker.open()
        with pytest.raises(InvalidArgument, match=f"^{field}:"):
            worker.control("trace", **asked)
