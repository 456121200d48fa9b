"""The load generator's reading of an answer: what it times, and what it refuses to count."""

from __future__ import annotations

import json

import pytest

from tests.bench.answers import Answer, AnswerFlawed, read_answer
from tests.e2e.word_model import word_of

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def event(*ids: int) -> bytes:
    """One server-sent event in an HTTP chunk of its own, as the frontend writes it."""
    body = {"choices": [{"index": 0, "text": "".join(f" {word_of(i)}" for i in ids)}]}
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def answer(*pieces: tuple[float, bytes]) -> Answer:
    """Asked at 10 s; the head came at 10.5 s."""
    return Answer(10.0, [(10.5, HEAD), *pieces])


def test_times_are_those_of_chunks_with_text() -> None:
    """The first chunk with text is the first token; a gap is the time to the next such chunk."""
    got = read_answer(answer((11.0, event(1000)), (11.5, event()), (13.0, event(1001, 1002))), 3)
    assert (got.ttft_s, got.gaps_s, got.chunks) == (1.0, [2.0], 2)


def test_a_chunk_has_come_when_its_last_byte_has() -> None:
    """A chunk cut in two by the network counts from its second half."""
    raw = event(1000)
    got = read_answer(answer((11.0, raw[:9]), (12.0, raw[9:] + event(1001))), 2)
    assert (got.ttft_s, got.gaps_s) == (2.0, [0.0])


@pytest.mark.parametrize("ids", [(1000, 1002), (1000, 1000, 1001), (1001, 1000), (1000,), (1000, 1001, 1002)])
def test_tokens_missing_twice_or_out_of_place_do_not_count(ids: tuple[int, ...]) -> None:
    """A figure is never made of an answer that is not exactly the one that was asked for."""
    with pytest.raises(AnswerFlawed):
        read_answer(answer((11.0, event(*ids))), 2)


@pytest.mark.parametrize(
    "raw", [b"HTTP/1.1 503 Busy\r\n\r\n", HEAD + b'a\r\ndata: {"error": {"code": 500}}\n\n\r\n']
)
def test_a_refusal_or_a_broken_stream_does_not_count(raw: bytes) -> None:
    """Errors are no fast answers."""
    with pytest.raises(AnswerFlawed):
        read_answer(Answer(0.0, [(1.0, raw)]), 1)
