"""What the worker tells the frontend about a model: template, thinking, reasoning and tool parsers, tags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.built_in import built_in_model
from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(240)]

# The answer is forced, so that a small model shows what the frontend makes of it.
FORCED = "<think>Paris it is.</think>The capital is Paris."
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "(no thinking) {% endif %}"
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
OPTIONS = ("--engine", "torch", "--model", "smollm2-135m", "--threads", "1", "--max-num-seqs", "2")


def test_reasoning_is_told_apart(tmp_path: Path) -> None:
    """A reasoning parser named at the worker splits thinking from answer at the frontend."""
    built_in_model()
    with Stack(tmp_path / "stack", [*OPTIONS, "--dyn-reasoning-parser", "basic"]) as stack:
        status, body = stack.chat("Capital of France?", guided_choice=[FORCED], temperature=0, max_tokens=60)
    assert status == 200, body
    message = body["choices"][0]["message"]
    assert message["reasoning_content"].strip() == "Paris it is."
    assert message["content"].strip() == "The capital is Paris."


def test_a_custom_template_and_the_thinking_mode_reach_the_prompt(tmp_path: Path) -> None:
    """The prompt is rendered by the operator's template, with the operator's default for thinking."""
    built_in_model()
    template = tmp_path / "chat.jinja"
    template.write_text(TEMPLATE, encoding="utf-8")
    lengths = {}
    for mode in ("enabled", "disabled"):
        options = [*OPTIONS, "--custom-jinja-template", str(template), "--dyn-default-thinking-mode", mode]
        with Stack(tmp_path / mode, options) as stack:
            status, body = stack.chat("Hello", temperature=0, max_tokens=1)
            assert status == 200, body
            lengths[mode] = body["usage"]["prompt_tokens"]
    assert lengths["disabled"] > lengths["enabled"]


def test_structural_tags_guide_an_automatic_tool_call(tmp_path: Path) -> None:
    """With tags on, free text is free, and a call that begins obeys its tool's schema."""
    built_in_model()
    options = [*OPTIONS, "--dyn-tool-call-parser", "hermes", "--dyn-enable-structural-tag"]
    options += ["--dyn-structural-tag-scope", "always", "--dyn-structural-tag-schema", "strict"]
    with Stack(tmp_path / "stack", options) as stack:
        status, plain = stack.chat("Say hello.", tools=[TOOL], tool_choice="auto", temperature=0, max_tokens=12)
        assert status == 200, plain
        status, body = stack.chat(
            "How is the weather in Oslo?",
            tools=[TOOL],
            tool_choice="required",
            temperature=0,
            max_tokens=80,
        )
    assert status == 200, body
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert set(json.loads(call["function"]["arguments"])) == {"city"}
