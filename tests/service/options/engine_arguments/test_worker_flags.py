"""The worker's own options as arguments of TensorRT-LLM, and what follows from several of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.spec import Stage
from service.options.engine_arguments.worker_flags import AFFINITY, EVENT_BUFFER, PATHS
from service.options.tables import BY_NAME
from tests.service.options.strategies import texts
from tests.service.options.world import NEW_FRAMEWORK, load, refused, value

if TYPE_CHECKING:
    from pathlib import Path

    from service.options import FrameworkFacts
    from service.options.engine_arguments import EngineArguments

_TRTLLM = ("--engine", "trtllm")
_PREFILL = ("--disaggregation-mode", "prefill")
_DECODE = ("--disaggregation-mode", "decode")
_HOOK = {"DYN_ENABLE_TEST_LOGITS_PROCESSOR": "1"}


def _arguments(
    *words: str, env: dict[str, str] | None = None, facts: FrameworkFacts | None = None
) -> EngineArguments:
    found = load(*_TRTLLM, *words, env=env, facts=facts).engine_arguments
    assert found is not None
    return found


def _override(**values: object) -> str:
    return f"--override-engine-args={json.dumps(values)}"


def _value(arguments: EngineArguments, path: str) -> object:
    return dict(arguments.origins)[path].value


@st.composite
def _mapped(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from([name for name in PATHS if name not in ("model", "load_format")]))
    return name, draw(texts(BY_NAME[name].kind))


@given(_mapped())
def test_each_option_reaches_its_argument(drawn: tuple[str, str]) -> None:
    """Whatever its value, at the path of the table, with the flag as its source."""
    name, text = drawn
    option = BY_NAME[name]
    arguments = _arguments(f"{option.flag}={text}")
    assert _value(arguments, PATHS[name]) == option.kind.parse(text)
    assert dict(arguments.origins)[PATHS[name]].where == option.flag


def test_nothing_is_given_without_a_word() -> None:
    """Defaults have no source, and what has none stays TensorRT-LLM's."""
    arguments = _arguments()
    assert {leaf.where for _, leaf in arguments.origins} == {""}
    assert "max_seq_len" not in arguments.values
    assert "moe_expert_parallel_size" not in arguments.values
    assert "cache_transceiver_config" not in arguments.values
    assert "model" not in arguments.besides_model


def test_the_model_is_chosen_in_one_place() -> None:
    """Another one in the arguments would answer with a tokenizer that is not its own."""
    line = refused(*_TRTLLM, "--model", "a/b", _override(model="c/d"))
    assert line == (
        "--override-engine-args:model: value 'c/d': the model is chosen with --model, which is a/b; "
        "leave it out here"
    )
    assert _arguments("--model", "a/b", _override(model="a/b")).values["model"] == "a/b"


@pytest.mark.parametrize(("words", "role"), [(_PREFILL, Stage.PREFILL), (_DECODE, Stage.DECODE)])
def test_roles_hand_over_with_ucx_unless_told_otherwise(words: tuple[str, str], role: Stage) -> None:
    """Another back-end is kept, and so is what else a file says about the way."""
    assert _arguments(*words).values["cache_transceiver_config"] == {"backend": "UCX"}
    kept = _arguments(*words, _override(cache_transceiver_config={"backend": "NIXL"}))
    assert kept.values["cache_transceiver_config"] == {"backend": "NIXL"}
    merged = _arguments(*words, _override(cache_transceiver_config={"kv_transfer_timeout_ms": 500}))
    assert merged.values["cache_transceiver_config"] == {"backend": "UCX", "kv_transfer_timeout_ms": 500}
    assert merged.role is role


@pytest.mark.parametrize("value", [None, {"backend": None}])
def test_a_role_that_hands_over_needs_a_way(value: object) -> None:
    """Switched off, every request would fail in the engine."""
    line = refused(*_TRTLLM, *_PREFILL, _override(cache_transceiver_config=value))
    assert line.startswith("--override-engine-args:cache_transceiver_config")
    assert "--disaggregation-mode prefill needs that" in line


@pytest.mark.parametrize(
    ("drain_s", "kept_ms", "is_told"),
    [(None, None, True), (59, None, True), (60, None, False), (None, 35_000, False), (None, 35_001, True)],
)
def test_a_drain_that_ends_before_its_transfers_is_told(
    drain_s: int | None, kept_ms: int | None, is_told: bool
) -> None:
    """Decode workers would lose what they read. A default is called one; other roles hand nothing over."""
    words = [] if drain_s is None else ["--drain-timeout", str(drain_s)]
    if kept_ms is not None:
        words += [_override(cache_transceiver_config={"kv_transfer_timeout_ms": kept_ms})]
    drain = "the default drain of 35 s" if drain_s is None else f"--drain-timeout: a drain of {drain_s} s"
    beginning = f"{drain} ends before the {(kept_ms or 60_000) / 1000:g} s"
    told = load(*_TRTLLM, *_PREFILL, *words).warnings
    assert [line.startswith(beginning) for line in told] == [True] * is_told
    assert all(" give --drain-timeout " in line and " a grace period " in line for line in told)
    assert load(*_TRTLLM, *_DECODE, *words).warnings == ()


def test_a_time_in_quotes_is_refused_as_any_other_type() -> None:
    """Before a prefill worker counts with it."""
    quoted = _override(cache_transceiver_config={"kv_transfer_timeout_ms": "60000"})
    path = "--override-engine-args:cache_transceiver_config.kv_transfer_timeout_ms"
    line = f"{path}: value '60000': allowed: a whole number from 1 up"
    assert refused(*_TRTLLM, *_PREFILL, quoted) == line


def test_a_prefill_worker_must_know_how_long_it_is_read() -> None:
    """No time at all would leave it unsure for ever; a decode worker does not care."""
    endless = _override(cache_transceiver_config={"kv_transfer_timeout_ms": None})
    line = refused(*_TRTLLM, *_PREFILL, endless)
    assert line.startswith("--override-engine-args:cache_transceiver_config.kv_transfer_timeout_ms: ")
    assert line.endswith("give milliseconds")
    of_decode = _arguments(*_DECODE, endless).values["cache_transceiver_config"]
    assert of_decode == {"backend": "UCX", "kv_transfer_timeout_ms": None}


@pytest.mark.parametrize(
    ("role", "component"), [("agg", "backend"), ("decode", "backend"), ("prefill", "prefill")]
)
def test_a_prefill_worker_registers_beside_the_others(role: str, component: str) -> None:
    """As upstream; an endpoint that was given names everything itself."""
    words = [*_TRTLLM, "--disaggregation-mode", role]
    assert load(*words).runtime.component == component
    assert load(*words, "--endpoint", "a.b.c").runtime.component == "b"


@pytest.mark.parametrize(
    ("words", "env", "facts", "has_events", "has_metrics"),
    [
        ([], {}, None, False, False),
        (["--publish-kv-events"], {}, None, True, True),
        (["--publish-kv-events"], {}, NEW_FRAMEWORK, True, False),
        (["--publish-events-and-metrics"], {}, NEW_FRAMEWORK, True, True),
        ([], {"DYN_TRTLLM_PUBLISH_EVENTS_AND_METRICS": "1"}, NEW_FRAMEWORK, True, True),
        (["--publish-metrics"], {}, NEW_FRAMEWORK, False, True),
        (["--publish-kv-events", "--no-publish-metrics"], {}, None, True, False),
        (["--no-publish-events-and-metrics", "--publish-metrics"], {}, NEW_FRAMEWORK, False, True),
    ],
)
def test_events_and_metrics_follow_the_frameworks_switches(
    words: list[str], env: dict[str, str], facts: FrameworkFacts | None, has_events: bool, has_metrics: bool
) -> None:
    """1.4 has one switch for both, 1.6 has two; the engine is told to measure what will be shown."""
    settings = load(*_TRTLLM, *words, env=env, facts=facts)
    arguments = settings.engine_arguments
    assert arguments is not None
    runtime = settings.runtime
    assert (runtime.publishes_kv_events, runtime.publishes_engine_metrics) == (has_events, has_metrics)
    assert value(arguments, EVENT_BUFFER) == (100_000 if has_events else None)
    assert bool(value(arguments, "return_perf_metrics")) == has_metrics
    assert bool(value(arguments, "enable_iter_perf_stats")) == (has_events or has_metrics)


def test_a_buffer_of_a_file_is_kept_and_none_is_not_enough() -> None:
    """Without one there are no events."""
    own = _arguments("--publish-kv-events", _override(kv_cache_config={"event_buffer_max_size": 7}))
    assert value(own, EVENT_BUFFER) == 7
    none = load(*_TRTLLM, "--publish-kv-events", _override(kv_cache_config={"event_buffer_max_size": 0}))
    assert value(none.engine_arguments, EVENT_BUFFER) == 100_000
    assert none.warnings == (
        "--override-engine-args:kv_cache_config.event_buffer_max_size: 100000 for --publish-kv-events wins "
        "over no buffer",
    )


def test_a_decode_worker_keeps_no_events() -> None:
    """Routers look for blocks where prompts are computed; its metrics are another matter."""
    settings = load(*_TRTLLM, *_DECODE, "--publish-kv-events")
    assert settings.warnings == (
        "--publish-kv-events: of a decode worker no KV blocks are told, routers need none",
    )
    assert not value(settings.engine_arguments, EVENT_BUFFER)
    assert value(settings.engine_arguments, "enable_iter_perf_stats") is True


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            [_override(kv_cache_config={"event_buffer_max_size": 7})],
            "has no effect: it takes --publish-kv-events",
        ),
        (
            ["--publish-kv-events", _override(kv_cache_config={"enable_block_reuse": False})],
            "false leaves no KV events to publish",
        ),
        (["--publish-metrics", _override(enable_iter_perf_stats=False)], "leaves the figures"),
        (["--conversation-affinity"], "has no effect: without --enable-attention-dp"),
        (["--conversation-affinity-dp-rank-source=dynamo"], "has no effect without --conversation-affinity"),
        ([_override(enable_lora=True, lora_config={})], "has no effect: lora_config decides"),
        (["--no-publish-kv-events", "--connector", "lmcache"], "is no connector of this worker"),
    ],
)
def test_what_comes_to_nothing_is_said(words: list[str], part: str) -> None:
    """One warning, and the worker starts."""
    (warning,) = load(*_TRTLLM, *words).warnings
    assert part in warning


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([_override(enable_lora=True)], "the PyTorch backend ignores it; give lora_config instead"),
        (
            ["--publish-kv-events", _override(kv_cache_config={"kv_cache_event_hash_algo": "v2_sha256"})],
            "v2_sha256_64 has them",
        ),
        (
            ["--load-format", "gms"],
            "--load-format: value 'gms': allowed: auto or dummy; gms needs the GPU memory",
        ),
        (["--model-loader-extra-config", '{"gms_read_only": true}'], "GPU memory service"),
        (["--fpm-trace"], "trace writer"),
        (["--modality", "multimodal"], "multimodal engine"),
    ],
)
def test_what_cannot_be_honoured_is_refused(words: list[str], part: str) -> None:
    """With the reason, although the engine is the right one."""
    assert part in refused(*_TRTLLM, *words)


@pytest.mark.parametrize("env", [{"DYN_LORA_ENABLED": "1"}, {"DYN_SNAPSHOT_CONTROL_DIR": "/x"}])
def test_life_cycles_of_the_upstream_worker_are_refused(env: dict[str, str]) -> None:
    """Snapshots and routes for adapters are not there."""
    assert refused(*_TRTLLM, env=env).startswith(f"{next(iter(env))}: value ")


def test_attention_data_parallelism_makes_ranks() -> None:
    """One of each of the tensor parallel group; without it there is one."""
    alone = _arguments("--tensor-parallel-size", "8")
    assert (value(alone, "tensor_parallel_size"), bool(value(alone, "enable_attention_dp"))) == (8, False)
    ranks = _arguments("--tensor-parallel-size", "8", "--enable-attention-dp")
    assert (value(ranks, "tensor_parallel_size"), value(ranks, "enable_attention_dp")) == (8, True)


def test_conversations_stay_on_one_rank() -> None:
    """By flag or by argument; a flag that says no wins over a file."""
    ranks = ("--enable-attention-dp", "--tensor-parallel-size", "4")
    affinity = {"kv_cache_routing_conversation_affinity": True}
    by_flag = _arguments(*ranks, "--conversation-affinity")
    assert by_flag.values["attention_dp_config"] == affinity
    assert by_flag.chooses_ranks
    by_argument = _arguments(
        *ranks, "--conversation-affinity-dp-rank-source", "dynamo", _override(attention_dp_config=affinity)
    )
    assert by_argument.values["attention_dp_config"] == affinity
    assert not by_argument.chooses_ranks
    assert not value(_arguments(*ranks, "--no-conversation-affinity"), AFFINITY)


def test_the_connector_is_taken_whole(tmp_path: Path) -> None:
    """Nothing of another connector may be left in it, and blocks are not reused in part."""
    path = tmp_path / "engine.yaml"
    path.write_text("kv_connector_config: {connector: lmcache}\n", encoding="utf-8")
    settings = load(*_TRTLLM, "--connector", "kvbm", "--extra-engine-args", str(path))
    arguments = settings.engine_arguments
    assert arguments is not None
    assert arguments.values["kv_connector_config"] == {
        "connector_module": "kvbm.trtllm_integration.connector",
        "connector_scheduler_class": "DynamoKVBMConnectorLeader",
        "connector_worker_class": "DynamoKVBMConnectorWorker",
    }
    assert _value(arguments, "kv_cache_config.enable_partial_reuse") is False
    assert [warning.partition(":")[0] for warning in settings.warnings] == ["kv_connector_config"]
    without = load(*_TRTLLM, "--connector", "none", "--extra-engine-args", str(path)).engine_arguments
    assert without is not None
    assert without.values["kv_connector_config"] is None


@pytest.mark.parametrize(
    ("words", "env", "has_tokenizer"),
    [
        ([], {}, False),
        ([], _HOOK, True),
        (_DECODE, _HOOK, True),
        (_PREFILL, _HOOK, False),
        ([_override(reasoning_parser="qwen3")], {}, True),
        ([*_PREFILL, _override(reasoning_parser="qwen3")], {}, False),
        ([_override(reasoning_parser="qwen3", skip_tokenizer_init=True)], {}, False),
        ([_override(skip_tokenizer_init=False)], {}, True),
        (["--guided-decoding-backend", "xgrammar"], {}, True),
        ([*_PREFILL, "--guided-decoding-backend", "llguidance"], {}, True),
        ([_override(guided_decoding_backend="xgrammar", skip_tokenizer_init=True)], {}, True),
    ],
)
def test_the_engine_reads_text_only_where_it_must(
    words: list[str], env: dict[str, str], has_tokenizer: bool
) -> None:
    """For constraints, the test processor and thinking budgets; a prefill has no use for the last two."""
    assert _arguments(*words, env=env).values["skip_tokenizer_init"] is not has_tokenizer


def test_the_test_processor_wins_aloud_over_an_argument() -> None:
    """It cannot work otherwise."""
    settings = load(*_TRTLLM, _override(skip_tokenizer_init=True), env=_HOOK)
    assert settings.warnings == (
        "skip_tokenizer_init: false for DYN_ENABLE_TEST_LOGITS_PROCESSOR wins over true of "
        "--override-engine-args",
    )


def test_other_engines_have_no_arguments() -> None:
    """And none of TensorRT-LLM's defaults."""
    settings = load("--engine", "torch")
    assert settings.engine_arguments is None
    assert (settings.model.model, settings.engine.max_num_seqs) == ("smollm2-135m", 64)
    assert settings.graph.hang_timeout_s == 30


def test_defaults_are_those_of_the_engine() -> None:
    """Model, sizes and patience; what was given stays, and the settings say which that was."""
    settings = load(*_TRTLLM, "--max-batch-size", "64")
    assert settings.model.model == "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    assert (settings.engine.max_num_seqs, settings.engine.step_tokens) == (64, 8192)
    assert settings.graph.hang_timeout_s == 300
    assert settings.resolution["max_batch_size"].is_given
    assert not settings.resolution["max_num_tokens"].is_given
    assert load(*_TRTLLM, "--max-num-tokens", "8").engine.step_tokens == 8
