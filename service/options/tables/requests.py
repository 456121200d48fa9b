"""What is advertised to the frontend about requests: parsers, templates, tags, the health check."""

from __future__ import annotations

from service.options.json_kind import JsonObject
from service.options.kinds import Boolean, Choice, Text
from service.options.option import Group, Option

REQUESTS: tuple[Option, ...] = (
    Option(
        name="dyn_tool_call_parser",
        flag="--dyn-tool-call-parser",
        env="DYN_TOOL_CALL_PARSER",
        kind=Text("a tool parser of the installed framework", r"[\w.-]+"),
        default=None,
        default_text="none",
        group=Group.REQUESTS,
        help="Parser the frontend uses for tool calls of this model.",
    ),
    Option(
        name="dyn_reasoning_parser",
        flag="--dyn-reasoning-parser",
        env="DYN_REASONING_PARSER",
        kind=Text("a reasoning parser of the installed framework", r"[\w.-]+"),
        default=None,
        default_text="none",
        group=Group.REQUESTS,
        help="Parser the frontend uses for reasoning of this model.",
    ),
    Option(
        name="dyn_default_thinking_mode",
        flag="--dyn-default-thinking-mode",
        env="DYN_DEFAULT_THINKING_MODE",
        kind=Choice(("enabled", "disabled")),
        default=None,
        default_text="the template's own",
        group=Group.REQUESTS,
        help="Thinking in chat templates when a request does not say.",
        framework_field="default_thinking_mode",
    ),
    Option(
        name="exclude_tools_when_tool_choice_none",
        flag="--exclude-tools-when-tool-choice-none",
        env="DYN_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE",
        kind=Boolean(),
        default=True,
        group=Group.REQUESTS,
        help="Leave tool definitions out of the prompt when a request says tool_choice none.",
    ),
    Option(
        name="dyn_enable_structural_tag",
        flag="--dyn-enable-structural-tag",
        env="DYN_ENABLE_STRUCTURAL_TAG",
        kind=Boolean(),
        default=False,
        group=Group.REQUESTS,
        help="Guide tool calls with structural tags. From framework 1.6 on, an old spelling of "
        "--dyn-structural-tag, which is on by default.",
    ),
    Option(
        name="dyn_structural_tag_scope",
        flag="--dyn-structural-tag-scope",
        env="DYN_STRUCTURAL_TAG_SCOPE",
        kind=Choice(("auto", "always")),
        default="auto",
        group=Group.REQUESTS,
        help="`auto`: for required, named, strict or single tool calls; `always`: for tool_choice auto, too. "
        "From framework 1.6 on, an old spelling of that part of --dyn-structural-tag, by default `always`.",
    ),
    Option(
        name="dyn_structural_tag_schema",
        flag="--dyn-structural-tag-schema",
        env="DYN_STRUCTURAL_TAG_SCHEMA",
        kind=Choice(("auto", "strict")),
        default="auto",
        group=Group.REQUESTS,
        help="`auto`: the parameters' schema binds strict tools only; `strict`: all tools. From framework "
        "1.6 on, an old spelling of that part of --dyn-structural-tag.",
    ),
    Option(
        name="custom_jinja_template",
        flag="--custom-jinja-template",
        env="DYN_CUSTOM_JINJA_TEMPLATE",
        kind=Text("a file; ~ and $VARIABLES are expanded"),
        default=None,
        default_text="the model's own",
        group=Group.REQUESTS,
        help="Chat template the frontend renders with.",
    ),
    Option(
        name="health_check_payload",
        flag="--health-check-payload",
        env="DYN_HEALTH_CHECK_PAYLOAD",
        kind=JsonObject(at_file=True),
        default=None,
        default_text="one token",
        group=Group.REQUESTS,
        help="Request of the health check, instead of the engine's own.",
    ),
)
