"""What came over one connection for one request: are all tokens there, and when did they come?

Read after the load, not during it: a client that decodes while it measures is part of what it measures.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from actors.engines.synthetic import FIRST_TOKEN_ID
from tests.e2e.word_model import word_of

# One event is written as one HTTP chunk; should that change, the JSON inside is cut and reading it fails.
_EVENT = re.compile(rb"data: (\{.*?\})\n\n", re.DOTALL)


class AnswerFlawed(Exception):
    """A token is missing, out of place or there twice, or the answer is no answer."""


@dataclass(slots=True)
class Answer:
    """Raw bytes of one answer as the socket gave them, each piece with its monotonic arrival time."""

    asked_s: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Seconds: time to the first chunk with text, and the gaps between such chunks."""

    ttft_s: float
    gaps_s: list[float]
    chunks: int


def read_answer(answer: Answer, tokens: int) -> Timeline:
    """Decode and check one answer of so many tokens. Raises AnswerFlawed."""
    raw = b"".join(piece for _, piece in answer.pieces)
    if not raw.startswith(b"HTTP/1.1 200"):
        raise AnswerFlawed(f"not an answer: {raw[:300]!r}")
    ends = list(accumulate(len(piece) for _, piece in answer.pieces))
    texts: list[str] = []
    times_s: list[float] = []
    for match in _EVENT.finditer(raw):
        text = _text_of(json.loads(match[1]))
        if text:
            texts.append(text)
            times_s.append(answer.pieces[bisect_left(ends, match.end())][0])
    _check_tokens("".join(texts), tokens)
    return Timeline(
        ttft_s=times_s[0] - answer.asked_s,
        gaps_s=[later - earlier for earlier, later in pairwise(times_s)],
        chunks=len(times_s),
    )


def _text_of(event: dict[str, object]) -> str:
    if "error" in event:
        raise AnswerFlawed(f"the stream broke: {event['error']}")
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices:
        return ""
    return str(choices[0].get("text") or "")


def _check_tokens(text: str, tokens: int) -> None:
    said = text.split()
    expected = [word_of(FIRST_TOKEN_ID + place) for place in range(tokens)]
    if said != expected:
        place = next((i for i, (a, b) in enumerate(zip(said, expected, strict=False)) if a != b), len(said))
        raise AnswerFlawed(f"{len(said)} tokens for {tokens}; the first wrong one is at place {place}")
