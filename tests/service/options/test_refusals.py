"""Known by name, refused with the reason: nothing is ignored silently."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.options.option import Option
from service.options.tables import OPTIONS
from tests.service.options.strategies import texts
from tests.service.options.world import NEW_FRAMEWORK, load, refused

_REFUSED = [option for option in OPTIONS if option.refusal is not None]
# They have rules of their own, tested below.
_SPECIAL = {"connector", "disaggregation_mode"}
_FLAGGED = [option for option in _REFUSED if option.flag and option.name not in _SPECIAL]


@st.composite
def _option_and_text(draw: st.DrawFn) -> tuple[Option, str]:
    option = draw(st.sampled_from(_FLAGGED))
    return option, draw(texts(option.kind))


@given(_option_and_text())
def test_a_refused_option_gives_its_reason(drawn: tuple[Option, str]) -> None:
    """Any value but the accepted ones stops the start; the line says what is missing and what to do."""
    option, text = drawn
    value = option.kind.parse(text)
    assert option.refusal is not None
    assume(value not in (option.default, *option.refusal.accepts))
    line = refused("--engine", "torch", f"{option.flag}={text}")
    assert line.startswith(f"{option.flag}: value ")
    assert f"it needs {option.refusal.needs}; {option.refusal.instead}" in line


@pytest.mark.parametrize("option", _REFUSED, ids=[option.name for option in _REFUSED])
def test_every_refusal_says_what_is_missing_and_what_to_do(option: Option) -> None:
    """No empty reasons."""
    assert option.refusal is not None
    assert len(option.refusal.needs) > 8
    assert len(option.refusal.instead) > 8


@pytest.mark.parametrize("engine", ["torch", "synthetic"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_roles_that_hand_over_are_refused_by_engines_that_cannot(role: str, engine: str) -> None:
    """They cannot hand a KV cache over."""
    line = refused("--engine", engine, "--disaggregation-mode", role)
    assert line.startswith(f"--disaggregation-mode: value '{role}'")
    assert "serve aggregated (agg or pd)" in line


@pytest.mark.parametrize("engine", ["auto", "trtllm", "torch", "synthetic"])
@pytest.mark.parametrize(
    ("role", "hint"), [("encode", "that encodes media"), ("prefill_and_decode", "use agg for aggregated")]
)
def test_roles_of_no_engine_are_refused_by_name(role: str, hint: str, engine: str) -> None:
    """Media are not served, and an old name is answered with the new ones, as upstream does."""
    line = refused("--engine", engine, "--disaggregation-mode", role)
    assert line.startswith(f"--disaggregation-mode: value '{role}'")
    assert hint in line


@pytest.mark.parametrize("role", ["agg", "pd"])
def test_aggregated_has_two_names(role: str) -> None:
    """As upstream."""
    assert load("--disaggregation-mode", role).runtime.component == "backend"


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--publish-kv-events"], {}),
        (["--publish-events-and-metrics"], {}),
        ([], {"DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS": "1"}),
    ],
)
def test_kv_events_need_an_engine_with_a_cache(words: list[str], env: dict[str, str]) -> None:
    """Old and new spelling, flag and variable: taken, but not by an engine that has nothing to publish."""
    assert load(*words, env=env).runtime.publishes_kv_events
    assert "has no KV cache" in refused(*words, "--engine", "synthetic", env=env)


@pytest.mark.parametrize("engine", ["torch", "synthetic"])
@pytest.mark.parametrize(
    "words",
    [
        ["--trtllm.kv_cache_config.free_gpu_memory_fraction", "0.5"],
        ["--trtllm.max_batch_size=8"],
    ],
)
def test_engine_arguments_are_refused_by_other_engines(words: list[str], engine: str) -> None:
    """Both ways of writing a dotted flag."""
    line = refused("--engine", engine, *words)
    assert line.startswith(f"{words[0].partition('=')[0]}: ")
    assert f"holds arguments of TensorRT-LLM, which the engine {engine} has not" in line


@pytest.mark.parametrize(
    ("engine", "words", "named"),
    [
        ("trtllm", ["--dtype", "float32", "--synthetic-step-ms", "5"], "--dtype, --synthetic-step-ms"),
        ("torch", ["--synthetic-step-ms", "5", "--threads", "1"], "--synthetic-step-ms"),
        ("synthetic", ["--synthetic-step-ms", "5", "--threads", "1"], "--threads"),
    ],
)
def test_options_of_other_engines_are_named_once(engine: str, words: list[str], named: str) -> None:
    """They change nothing, and whoever wrote them should know."""
    settings = load("--engine", engine, *words)
    assert settings.warnings == (f"{named}: without effect, the engine {engine} has no such option",)


@pytest.mark.parametrize("word", ["--trtllm.", "--trtllm.a..b", "--trtllm..a"])
def test_a_dotted_flag_with_an_empty_part_is_refused(word: str) -> None:
    """Upstream ends with 1 here, too."""
    assert "an empty part between dots" in refused(word, "1")


def test_a_dotted_flag_needs_a_value() -> None:
    """The next flag is none."""
    assert refused("--trtllm.max_batch_size", "--max-live", "3") == "--trtllm.max_batch_size: needs a value"


@pytest.mark.parametrize("words", [["--connector"], ["--connector", "none"], ["--connector", "null"]])
def test_no_connector_is_fine(words: list[str]) -> None:
    """The default in all its forms."""
    assert load(*words).warnings == ()


def test_an_unknown_connector_counts_as_none_with_a_warning() -> None:
    """Upstream's rule."""
    assert load("--connector", "lmcache").warnings == (
        "--connector: 'lmcache' is no connector of this worker; none is used",
    )


@pytest.mark.parametrize("engine", ["trtllm", "torch"])
def test_two_connectors_are_refused(engine: str) -> None:
    """As upstream."""
    line = refused("--engine", engine, "--connector", "none", "kvbm")
    assert line == "--connector: value 'none,kvbm': allowed: one connector at most, none or kvbm"


def test_a_real_connector_needs_tensorrt() -> None:
    """The other engines keep their KV cache to themselves."""
    assert refused("--engine", "torch", "--connector", "kvbm").startswith("--connector: value 'kvbm'")
    load("--engine", "trtllm", "--connector", "kvbm")


def test_routing_variables_only_warn() -> None:
    """One environment file may serve frontend and worker; a flag was meant for this worker."""
    assert load(env={"DYN_ROUTER_MODE": "kv"}).warnings == (
        "DYN_ROUTER_MODE has no effect on this worker; give it to the frontend",
    )
    assert "give it to the frontend" in refused("--router-mode", "kv")


def test_tls_is_never_ignored() -> None:
    """Who asks for encryption must not get a plain connection, whatever the source."""
    assert "encrypts its transport" in refused(env={"DYN_TCP_TLS_CERT_PATH": "/cert.pem"})
    assert "encrypts its transport" in refused("--nats-tls-ca-cert-path", "/ca.pem", facts=NEW_FRAMEWORK)


@pytest.mark.parametrize("words", [["--response-plane", "quic"], ["--dyn-structural-tag", "true"]])
def test_newer_options_depend_on_the_installed_framework(words: list[str]) -> None:
    """Accepted where WorkerConfig has the field, refused with that reason elsewhere."""
    assert "ai-dynamo 1.4.2 has not" in refused(*words)
    load(*words, facts=NEW_FRAMEWORK)


def test_a_misspelt_role_is_told_those_that_there_are() -> None:
    """Not those that are refused whatever the engine."""
    line = refused("--disaggregation-mode", "prefil")
    assert line == "--disaggregation-mode: value 'prefil': allowed: one of agg, pd, prefill, decode"


def test_switches_are_shown_as_they_are_written() -> None:
    """Not as Python has them."""
    line = refused("--engine", "trtllm", "--trtllm.encode_only", "true")
    assert line.startswith("--trtllm.encode_only: value true: ")
