"""Logits processors over HTTP: chosen by annotation, and upstream's test hook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.engines import Served
from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]


def with_processor(text: str) -> dict[str, object]:
    return {"annotations": [f"logits-processor:{text}"]}


def test_a_request_chooses_its_processor(model_stack: Stack) -> None:
    """The named one changes this answer, with the options it was given, and no other."""
    _, plain = model_stack.chat("Hello", temperature=0, max_tokens=6)
    options = json.dumps({"token": 49, "times": 4})
    status, body = model_stack.chat(
        "Hello", temperature=0, max_tokens=6, nvext=with_processor(f"only-a={options}")
    )
    assert status == 200, body
    answer = body["choices"][0]["message"]["content"]
    assert answer[:4] == answer[0] * 4
    _, after = model_stack.chat("Hello", temperature=0, max_tokens=6)
    assert after["choices"][0]["message"] == plain["choices"][0]["message"]


@pytest.mark.parametrize(
    "text", ["unknown", "only-a", 'only-a={"token": 1, "times": 0}', "only-a=[]", 'only-a={"colour": 1}']
)
def test_a_wrong_choice_is_refused(model_stack: Stack, text: str) -> None:
    """An unknown name, options that are missing, wrong or not an object: 400 with what is allowed."""
    status, body = model_stack.chat("Hello", max_tokens=4, nvext=with_processor(text))
    assert status == 400, body
    assert "annotations" in json.dumps(body)


def test_a_broken_processor_fails_its_own_request(model_stack: Stack) -> None:
    """The worker names it and serves the next one."""
    status, body = model_stack.chat("Hello", max_tokens=8, nvext=with_processor("broken"))
    assert status == 500, body
    assert "broken" in model_stack.workers[0].log()
    status, _ = model_stack.chat("Hello", max_tokens=2)
    assert status == 200


def test_each_processor_has_its_time_in_the_metrics(model_stack: Stack) -> None:
    """Operators see what their code costs a token."""
    model_stack.chat("Hello", max_tokens=4, nvext=with_processor('only-a={"token": 49}'))
    _, page = model_stack.workers[0].system.get("/metrics")
    spent = [line for line in page.splitlines() if "logits_processor_seconds" in line and "only-a" in line]
    assert [float(line.rsplit(" ", 1)[1]) > 0 for line in spent] == [True]


def test_the_hook_forces_hello_world(served: Served, tiny_model: Path, tmp_path: Path) -> None:
    """With upstream's variable set every answer is the same two words (the other spelling: in process)."""
    environ = {"DYNAMO_ENABLE_TEST_LOGITS_PROCESSOR": "1"}
    with served.stack_with_weights(tmp_path / "hook", tiny_model, environ=environ) as stack:
        for question in ("What is the capital of France?", "Count to ten."):
            status, body = stack.chat(question, temperature=1.0, max_tokens=40)
            assert status == 200, body
            assert body["choices"][0]["message"]["content"] == "Hello world!"
            assert body["choices"][0]["finish_reason"] == "stop"
