"""Real tokens of TensorRT-LLM's double behind the real frontend, with either guided decoding back-end."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles import xgrammar_path
from tests.e2e.roles import PROGRAM
from tests.e2e.servers import tool
from tests.e2e.stacks import ROOT, Stack
from tests.e2e.traced import asking, exporting_to, traceparent
from tests.service.telemetry.collectors import grpc_collector

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(180)]

STORY = "Tell me a story."
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 10, "ignore_eos": True}
PATTERN = r"[a-f]{3,6}!"
TRACE_ID, SPAN_ID = "0123456789abcdef0123456789abcdef", "1122334455667788"


@dataclass(frozen=True)
class Place:
    """A worker behind a frontend. journal: what the engine's process has been given."""

    stack: Stack
    journal: Path

    def arrived(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text(encoding="utf-8").splitlines()]

    def page(self) -> str:
        status, page = self.stack.workers[0].system.get("/metrics")
        assert status == 200
        return page


@pytest.fixture(scope="module", params=["llguidance", "xgrammar"])
def place(
    request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """With all that a request can ask for."""
    folder = tmp_path_factory.mktemp(request.param)
    journal = folder / "journal.jsonl"
    options = ["--engine", "trtllm", "--model", str(tiny_model), "--max-num-seqs", "4"]
    options += ["--guided-decoding-backend", request.param, "--publish-events-and-metrics"]
    options += ["--logits-processor", "only-a=tests.e2e.processors:Forcing"]
    environ = {
        "TENSORRT_LLM_DOUBLE": json.dumps({"journal": str(journal)}),
        "DOUBLE_STEP_MS": "1",
        "PYTHONPATH": os.pathsep.join([str(xgrammar_path._SITE), str(ROOT)]),
    }
    with grpc_collector() as collector:
        environ |= exporting_to(collector, "grpc")
        with Stack(folder / "stack", options, program=PROGRAM, environ=environ) as stack:
            yield Place(stack, journal)


def texts(body: dict[str, Any]) -> list[str]:
    """By index."""
    return [each["message"]["content"] for each in sorted(body["choices"], key=lambda each: each["index"])]


def test_a_stream_says_what_a_whole_answer_says(place: Place) -> None:
    """Greedy, so the same."""
    status, body = place.stack.chat(STORY, **GREEDY)
    assert status == 200, body
    assert body["usage"]["completion_tokens"] == 10
    question = [{"role": "user", "content": STORY}]
    events = place.stack.events("chat/completions", {"messages": question, **GREEDY})
    streamed = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e.get("choices"))
    assert [streamed] == texts(body)


def test_two_choices_are_two(place: Place) -> None:
    """Each with tokens of its own."""
    options: dict[str, Any] = {"seed": 11, "max_tokens": 12, "ignore_eos": True, "n": 2}
    status, body = place.stack.chat(STORY, temperature=1.5, **options)
    assert status == 200, body
    first, second = texts(body)
    assert first != second
    assert body["usage"]["completion_tokens"] == 24


def test_log_probabilities(place: Place) -> None:
    """One entry a token, the most likely ones first; a greedy token is the first of them."""
    status, body = place.stack.chat(STORY, logprobs=True, top_logprobs=3, **GREEDY)
    assert status == 200, body
    content = body["choices"][0]["logprobs"]["content"]
    assert len(content) == 10
    for entry in content:
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] == pytest.approx(entry["logprob"])


@pytest.mark.parametrize(
    ("option", "constraint", "matches"),
    [
        ("guided_regex", PATTERN, PATTERN),
        ("guided_choice", ["a.c (always)", "[never]"], r"a\.c \(always\)|\[never\]"),
        ("guided_json", {"enum": ["north", "south"]}, '"(north|south)"'),
    ],
)
def test_a_constraint_is_obeyed(place: Place, option: str, constraint: Any, matches: str) -> None:
    """By whatever the engine has for it."""
    status, body = place.stack.chat("Well?", **{option: constraint}, temperature=1.0, seed=3, max_tokens=200)
    assert status == 200, body
    (said,) = texts(body)
    assert re.fullmatch(matches, said)


@pytest.mark.parametrize(
    ("option", "constraint"), [("guided_json", {"type": "objekt"}), ("guided_regex", "[a-")]
)
def test_a_bad_constraint_is_its_callers(place: Place, option: str, constraint: Any) -> None:
    """Refused by name before the engine hears of it; the next request is served."""
    place.stack.chat("Hello", max_tokens=2)
    before = len(place.arrived())
    status, body = place.stack.chat("Hello", **{option: constraint}, max_tokens=4)
    assert status == 400, body
    assert "guided" in json.dumps(body)
    assert len(place.arrived()) == before
    assert place.stack.chat("Hello", max_tokens=2)[0] == 200


def test_a_processor_by_annotation(place: Place) -> None:
    """It runs in the engine's process, changes this answer and no other, and its time is told."""
    _, plain = place.stack.chat("Hello", **GREEDY)
    chosen = {"annotations": [f"logits-processor:only-a={json.dumps({'token': 49, 'times': 4})}"]}
    status, body = place.stack.chat("Hello", nvext=chosen, **GREEDY)
    assert status == 200, body
    (said,) = texts(body)
    assert said[:4] == said[0] * 4
    assert texts(place.stack.chat("Hello", **GREEDY)[1]) == texts(plain)
    spent = [line for line in place.page().splitlines() if "processor_seconds" in line and "only-a" in line]
    assert [float(line.rsplit(" ", 1)[1]) > 0 for line in spent] == [True]


@pytest.mark.parametrize("is_sampled", [True, False])
def test_the_callers_trace_reaches_the_engine(place: Place, is_sampled: bool) -> None:
    """With a span of ours as the parent, and the flags as they came."""
    headers = traceparent(TRACE_ID, SPAN_ID, is_sampled=is_sampled)
    with asking(place.stack, headers, max_tokens=2) as response:
        response.read()
    given = place.arrived()[-1]["trace_headers"]
    assert given is not None
    _, trace_id, span_id, flags = given["traceparent"].split("-")
    assert (trace_id, flags) == (TRACE_ID, f"{is_sampled:02x}")
    assert span_id != SPAN_ID


def test_the_page_of_figures(place: Place) -> None:
    """The library's own and ours, each once, and nothing that promtool would complain of."""
    place.stack.chat("Hello", max_tokens=2)
    page = place.page()
    names = {family.name for family in text_string_to_metric_families(page)}
    assert {"trtllm_request_success", "trtllm_e2e_request_latency_seconds"} <= names
    assert {"dynamo_actor_requests", "dynamo_actor_engine_steps"} <= names
    lines = page.splitlines()
    named = Counter(line for line in lines if line.startswith("# TYPE"))
    named += Counter(line.rpartition(" ")[0] for line in lines if line and not line.startswith("#"))
    assert [name for name, count in named.items() if count > 1] == []
    program = [tool("promtool"), "check", "metrics"]
    done = subprocess.run(program, input=page, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
