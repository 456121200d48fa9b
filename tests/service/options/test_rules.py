"""Rules about more than one value, and what becomes of the values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from actors.settings import GraphSettings
from tests.service.options.world import load, refused

if TYPE_CHECKING:
    from pathlib import Path


def test_defaults_are_the_graphs_own() -> None:
    """Without a word from the operator the graph gets the bounds it has by itself."""
    assert load().graph == GraphSettings()


def test_namespace_and_suffix_make_the_default_endpoint() -> None:
    """The operator's suffix is appended, as upstream does."""
    runtime = load("--namespace", "team", env={"DYN_NAMESPACE_WORKER_SUFFIX": "v2"}).runtime
    assert (runtime.namespace, runtime.component, runtime.endpoint) == ("team-v2", "backend", "generate")


@pytest.mark.parametrize("text", ["dyn://a.b.c", "a.b.c"])
def test_an_endpoint_names_everything(text: str) -> None:
    """It replaces namespace and suffix, aloud."""
    settings = load("--endpoint", text, "--namespace", "x", env={"DYN_NAMESPACE_WORKER_SUFFIX": "v2"})
    runtime = settings.runtime
    assert (runtime.namespace, runtime.component, runtime.endpoint) == ("a", "b", "c")
    assert len(settings.warnings) == 2


@pytest.mark.parametrize("text", ["a.b", "dyn://a.b.c.d", "dyn://a..c", "http://a.b.c"])
def test_a_wrong_endpoint_is_refused(text: str) -> None:
    """Three names, no more, no less."""
    assert "allowed: dyn://namespace.component.endpoint" in refused("--endpoint", text)


@pytest.mark.parametrize("text", ["none", "chat,none", "bogus", ","])
def test_only_routes_that_exist_are_accepted(text: str) -> None:
    """The framework would end the worker after it has loaded its model."""
    assert refused("--endpoint-types", text).startswith("--endpoint-types: value ")


def test_parsers_must_exist_in_the_framework() -> None:
    """Names are asked for only when a parser is named; the nearest is suggested."""
    assert load("--dyn-tool-call-parser", "hermes").requests.tool_call_parser == "hermes"
    line = refused("--dyn-reasoning-parser", "qwen")
    assert line == "--dyn-reasoning-parser: value 'qwen': allowed: one of basic, qwen3; the nearest is qwen3"


def test_a_template_is_expanded_and_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` and variables are expanded; a missing file stops the start."""
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages }}", encoding="utf-8")
    monkeypatch.setenv("TEMPLATES", str(tmp_path))
    assert load("--custom-jinja-template", "$TEMPLATES/chat.jinja").requests.custom_jinja_template == template
    assert "there is no file" in refused("--custom-jinja-template", "$TEMPLATES/none.jinja")


def test_a_health_payload_is_marked_as_one(tmp_path: Path) -> None:
    """Inline or from a file; the framework knows a probe by its mark."""
    payload = {"token_ids": [1]}
    (tmp_path / "payload.json").write_text(json.dumps(payload), encoding="utf-8")
    for text in (json.dumps(payload), f"@{tmp_path / 'payload.json'}"):
        found = load("--health-check-payload", text).requests.health_check_payload
        assert found == {**payload, "_HEALTH_CHECK": True}


@pytest.mark.parametrize(
    "text", ["[1]", "{", "@/nowhere", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a":' + "[" * 99_999]
)
def test_a_wrong_health_payload_is_refused(text: str) -> None:
    """Upstream warns and goes on; here it stops the start."""
    assert refused("--health-check-payload", text).startswith("--health-check-payload: value ")


def test_the_request_limit_is_max_live() -> None:
    """Upstream's option is honoured by our admission and kept from the framework."""
    settings = load(env={"DYN_ENGINE_REQUEST_LIMIT": "5", "DYN_DYNAMO_REQUEST_QUEUE_LIMIT": "9"})
    assert settings.graph.max_live == 5
    assert str(settings.resolution["max_live"].source) == "env DYN_ENGINE_REQUEST_LIMIT"
    assert settings.environment_to_unset == ("DYN_ENGINE_REQUEST_LIMIT", "DYN_DYNAMO_REQUEST_QUEUE_LIMIT")
    assert len(settings.warnings) == 2
    assert load("--engine-request-limit", "7").environment_to_unset == ()


def test_two_different_limits_are_refused() -> None:
    """The same number twice is no contradiction."""
    assert load("--engine-request-limit", "7", "--max-live", "7").graph.max_live == 7
    assert "differs from --max-live 8" in refused("--engine-request-limit", "7", "--max-live", "8")


@pytest.mark.parametrize("text", ["0", "-3"])
def test_a_limit_of_nothing_is_refused(text: str) -> None:
    """As upstream."""
    assert "--engine-request-limit: value" in refused("--engine-request-limit", text)


@pytest.mark.parametrize(
    "words",
    [
        ["--max-num-tokens", "63"],
        ["--max-num-tokens", "512", "--max-batch-size", "513"],
        ["--outbox-tokens", "31"],
        ["--chunk-tokens", "257"],
        ["--outbox-total-tokens", "255"],
        ["--outbox-total-tokens", "271"],
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(words: list[str]) -> None:
    """The line names both options."""
    assert "must be at least --" in refused(*words)


def test_the_step_budget_grows_with_the_batch() -> None:
    """Every running sequence decodes one token a step."""
    assert load().engine.step_tokens == 512
    assert load("--max-batch-size", "1024").engine.step_tokens == 1024
    assert load("--max-num-tokens", "256").engine.step_tokens == 256


@pytest.mark.parametrize(
    ("port", "is_accepted"), [("-1", True), ("0", True), ("32767", True), ("32768", False)]
)
def test_the_system_port_fits_what_the_framework_reads(port: str, is_accepted: bool) -> None:
    """Framework 1.4.2 reads a signed 16-bit number and dies on more; we say so first."""
    env = {"DYN_SYSTEM_PORT": port}
    if is_accepted:
        assert load(env=env).runtime.system_port == int(port)
    else:
        assert "signed 16-bit number" in refused(env=env)


def test_the_system_server_is_private_unless_told_otherwise() -> None:
    """Loopback by default; the operator's word and Kubernetes stand above it."""
    assert load().environment["DYN_SYSTEM_HOST"] == "127.0.0.1"
    assert load(env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).environment["DYN_SYSTEM_HOST"] == "0.0.0.0"
    told = load(env={"DYN_SYSTEM_HOST": "10.1.1.1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert told.runtime.system_host == "10.1.1.1"
    assert "DYN_SYSTEM_HOST" not in told.environment


def test_settings_never_show_the_secret() -> None:
    """Not in their repr, not in the resolution's."""
    settings = load(env={"DYN_ACTOR_CONTROL_TOKEN": "swordfish"})
    assert settings.control_token is not None
    assert settings.control_token.reveal() == "swordfish"
    shown = repr(settings) + str(settings.control_token) + repr(settings.resolution["control_token"])
    assert "swordfish" not in shown


def test_tensorrt_options_are_remembered_even_with_their_default() -> None:
    """Who writes them means TensorRT-LLM: ``--engine auto`` must not fall back to torch."""
    settings = load("--tensor-parallel-size", "1", env={"DYN_TRTLLM_MAX_BEAM_WIDTH": "1"})
    assert set(settings.engine.tensorrt_options) == {"--tensor-parallel-size", "DYN_TRTLLM_MAX_BEAM_WIDTH"}
    assert load().engine.tensorrt_options == ()
