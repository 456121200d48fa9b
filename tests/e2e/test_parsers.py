"""What the worker tells the frontend about a model: template, thinking, reasoning and tool parsers, tags."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.built_in import built_in_model
from tests.doubles import xgrammar_path
from tests.e2e.engines import TRTLLM, Served
from tests.e2e.stacks import ROOT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]

# The answer is forced, so that a small model shows what the frontend makes of it.
FORCED = "<think>Paris it is.</think>The capital is Paris."
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "(I will not think about it at all) {% endif %}"
)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
WEATHER = {"type": "function", "function": {"name": "weather"}}
OPTIONS = ("smollm2-135m", "--max-num-seqs", "2")
PARSERS = ("--dyn-reasoning-parser", "deepseek_r1", "--dyn-tool-call-parser", "hermes")


@pytest.fixture(scope="module")
def parsing_stack(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A worker that names parsers, without structural tags."""
    built_in_model()
    with served.stack_with_weights(tmp_path_factory.mktemp("parsing"), *OPTIONS, *PARSERS) as stack:
        yield stack


@pytest.fixture(scope="module")
def xgrammar_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The same with TensorRT-LLM's driver and its other back-end, whatever the engine of this run is."""
    built_in_model()
    served = Served(TRTLLM)
    path = os.pathsep.join([str(xgrammar_path._SITE), str(ROOT)])
    options = [*OPTIONS, *PARSERS, "--guided-decoding-backend", "xgrammar"]
    with served.stack_with_weights(
        tmp_path_factory.mktemp("xgrammar"), *options, environ={"PYTHONPATH": path}
    ) as stack:
        yield stack


@pytest.fixture(params=["parsing_stack", "xgrammar_stack"])
def calling_stack(request: pytest.FixtureRequest) -> Stack:
    """Either of them: the frontend's schemas for tools are obeyed by every back-end."""
    stack: Stack = request.getfixturevalue(request.param)
    return stack


@pytest.fixture(scope="module")
def tagging_stack(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A worker with structural tags, a template of the operator's and thinking off by default."""
    built_in_model()
    folder = tmp_path_factory.mktemp("tagging")
    template = folder / "chat.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    options = [*OPTIONS, "--dyn-tool-call-parser", "hermes", "--dyn-enable-structural-tag"]
    options += ["--dyn-structural-tag-scope", "always", "--dyn-structural-tag-schema", "strict"]
    options += ["--custom-jinja-template", str(template), "--dyn-default-thinking-mode", "disabled"]
    with served.stack_with_weights(folder / "stack", *options) as stack:
        yield stack


def check_call(body: dict[str, Any]) -> None:
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert set(json.loads(call["function"]["arguments"])) == {"city"}
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_reasoning_is_told_apart(parsing_stack: Stack) -> None:
    """A reasoning parser named at the worker splits thinking from answer at the frontend."""
    status, body = parsing_stack.chat(
        "Capital of France?", guided_choice=[FORCED], temperature=0, max_tokens=60
    )
    assert status == 200, body
    message = body["choices"][0]["message"]
    assert message["reasoning_content"].strip() == "Paris it is."
    assert message["content"].strip() == "The capital is Paris."


@pytest.mark.parametrize("choice", ["required", WEATHER], ids=["required", "named"])
def test_a_tool_that_has_to_be_called_is(calling_stack: Stack, choice: Any) -> None:
    """The frontend asks for a schema, of any of the tools or of one, and turns the answer into a call."""
    status, body = calling_stack.chat(
        "How is the weather in Oslo?", tools=[TOOL], tool_choice=choice, temperature=0, max_tokens=80
    )
    assert status == 200, body
    check_call(body)


def test_the_template_and_the_default_for_thinking_reach_the_prompt(tagging_stack: Stack) -> None:
    """The prompt is the operator's template's, longer by what it says when thinking is off."""
    _, default = tagging_stack.chat("Hello", temperature=0, max_tokens=1)
    _, thinking = tagging_stack.chat(
        "Hello", temperature=0, max_tokens=1, chat_template_kwargs={"enable_thinking": True}
    )
    assert default["usage"]["prompt_tokens"] > thinking["usage"]["prompt_tokens"]


def test_structural_tags_leave_free_text_free(tagging_stack: Stack) -> None:
    """An automatic choice with tags is a constraint, and not one that forbids to answer in words."""
    status, body = tagging_stack.chat(
        "Say hello.", tools=[TOOL], tool_choice="auto", temperature=0, max_tokens=12
    )
    assert status == 200, body
    assert body["choices"][0]["message"]["content"]


def test_structural_tags_bind_a_required_call(tagging_stack: Stack) -> None:
    """The call obeys the tool's schema, and words may follow it: no schema for a whole answer allows that."""
    status, body = tagging_stack.chat(
        "How is the weather in Oslo?", tools=[TOOL], tool_choice="required", temperature=0, max_tokens=80
    )
    assert status == 200, body
    check_call(body)
    assert body["choices"][0]["message"]["content"].strip()
