"""The page before any browser has seen it: it needs nothing and lets nothing in."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.inspection.asking import Asked, Heard, Question
from service.inspection.journeys import Life, journeys_of
from service.inspection.page import render_page
from service.inspection.story import Worker
from service.inspection.view import view_of
from service.telemetry.stories import Kept
from tests.service.inspection.fleet import HOSTILE, fleet
from tests.service.inspection.strategies import lives


class _Parts(HTMLParser):
    """The text of each script and style, the policy, and every attribute that could ask for something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.policy = ""
        self.asked_for: list[str] = []
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        self.tags.append(tag)
        named = dict(attrs)
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""
        self.asked_for += [named[name] or "" for name in ("src", "href") if name in named]

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style"):
            self.texts.append((self._within, data))

    def handle_endtag(self, tag: str) -> None:
        self._within = ""


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_this_style_and_this_script_and_nothing_else():
    """By their digests; there is no other source of anything."""
    parts = _Parts(render_page(view_of(fleet())))
    (style,) = [text for tag, text in parts.texts if tag == "style"]
    data, script = [text for tag, text in parts.texts if tag == "script"]
    rules = dict(rule.split(" ", 1) for rule in parts.policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "style-src": _digest(style),
        "script-src": _digest(script),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert json.loads(data)["requests"]
    assert parts.asked_for == ["data:,"]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", style + script)


@given(st.lists(lives(), max_size=3), st.text(max_size=60))
def test_no_data_can_leave_its_element(told: list[Life], wanted: str):
    """Whatever workers and the operator said, the page has the same elements, and the data come back."""
    asked = (Asked(Worker("http://a", HOSTILE), wanted), *{Asked(life.worker) for life in told})
    heard = Heard(Question(wanted, Kept.LAST, 64), asked, tuple(journeys_of(told)))
    view = view_of(heard)
    parts = _Parts(render_page(view))
    assert parts.tags == _Parts(render_page(view_of(fleet()))).tags
    back: dict[str, Any] = json.loads(next(text for tag, text in parts.texts if tag == "script"))
    assert [len(request["lives"]) for request in back["requests"]] == [
        len(request["lives"]) for request in view["requests"]
    ]
    assert all(text.isprintable() for text in _texts_in(back))


def _texts_in(part: Any) -> list[str]:
    match part:
        case str():
            return [part]
        case dict():
            return [text for value in part.values() for text in _texts_in(value)]
        case list():
            return [text for value in part for text in _texts_in(value)]
        case _:
            return []
