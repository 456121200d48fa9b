"""The worker's own options as arguments of TensorRT-LLM, and what follows from several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.options.engine_arguments.worker_flags import AFFINITY, PATHS
from service.options.tables import BY_NAME
from tests.service.options.engine_arguments.words import DECODE, PREFILL, TRTLLM, arguments_of, override
from tests.service.options.strategies import texts
from tests.service.options.world import load, refused, value

if TYPE_CHECKING:
    from pathlib import Path

    from service.options.engine_arguments import EngineArguments

_HOOK = {"DYN_ENABLE_TEST_LOGITS_PROCESSOR": "1"}


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
    arguments = arguments_of(f"{option.flag}={text}")
    assert _value(arguments, PATHS[name]) == option.kind.parse(text)
    assert dict(arguments.origins)[PATHS[name]].where == option.flag


def test_nothing_is_given_without_a_word() -> None:
    """Defaults have no source, and what has none stays TensorRT-LLM's."""
    arguments = arguments_of()
    assert {leaf.where for _, leaf in arguments.origins} == {""}
    assert "max_seq_len" not in arguments.values
    assert "moe_expert_parallel_size" not in arguments.values
    assert "cache_transceiver_config" not in arguments.values
    assert "model" not in arguments.besides_model


def test_the_model_is_chosen_in_one_place() -> None:
    """Another one in the arguments would answer with a tokenizer that is not its own."""
    line = refused(*TRTLLM, "--model", "a/b", override(model="c/d"))
    assert line == (
        "--override-engine-args:model: value 'c/d': the model is chosen with --model, which is a/b; "
        "leave it out here"
    )
    assert arguments_of("--model", "a/b", override(model="a/b")).values["model"] == "a/b"


@pytest.mark.parametrize("env", [{"DYN_LORA_ENABLED": "1"}, {"DYN_SNAPSHOT_CONTROL_DIR": "/x"}])
def test_life_cycles_of_the_upstream_worker_are_refused(env: dict[str, str]) -> None:
    """Snapshots and routes for adapters are not there."""
    assert refused(*TRTLLM, env=env).startswith(f"{next(iter(env))}: value ")


def test_attention_data_parallelism_makes_ranks() -> None:
    """One of each of the tensor parallel group; without it there is one."""
    alone = arguments_of("--tensor-parallel-size", "8")
    assert (value(alone, "tensor_parallel_size"), bool(value(alone, "enable_attention_dp"))) == (8, False)
    ranks = arguments_of("--tensor-parallel-size", "8", "--enable-attention-dp")
    assert (value(ranks, "tensor_parallel_size"), value(ranks, "enable_attention_dp")) == (8, True)


def test_conversations_stay_on_one_rank() -> None:
    """By flag or by argument; a flag that says no wins over a file."""
    ranks = ("--enable-attention-dp", "--tensor-parallel-size", "4")
    affinity = {"kv_cache_routing_conversation_affinity": True}
    by_flag = arguments_of(*ranks, "--conversation-affinity")
    assert by_flag.values["attention_dp_config"] == affinity
    assert by_flag.chooses_ranks
    by_argument = arguments_of(
        *ranks, "--conversation-affinity-dp-rank-source", "dynamo", override(attention_dp_config=affinity)
    )
    assert by_argument.values["attention_dp_config"] == affinity
    assert not by_argument.chooses_ranks
    assert not value(arguments_of(*ranks, "--no-conversation-affinity"), AFFINITY)


def test_the_connector_is_taken_whole(tmp_path: Path) -> None:
    """Nothing of another connector may be left in it, and blocks are not reused in part."""
    path = tmp_path / "engine.yaml"
    path.write_text("kv_connector_config: {connector: lmcache}\n", encoding="utf-8")
    settings = load(*TRTLLM, "--connector", "kvbm", "--extra-engine-args", str(path))
    arguments = settings.engine_arguments
    assert arguments is not None
    assert arguments.values["kv_connector_config"] == {
        "connector_module": "kvbm.trtllm_integration.connector",
        "connector_scheduler_class": "DynamoKVBMConnectorLeader",
        "connector_worker_class": "DynamoKVBMConnectorWorker",
    }
    assert _value(arguments, "kv_cache_config.enable_partial_reuse") is False
    assert [warning.partition(":")[0] for warning in settings.warnings] == ["kv_connector_config"]
    without = load(*TRTLLM, "--connector", "none", "--extra-engine-args", str(path)).engine_arguments
    assert without is not None
    assert without.values["kv_connector_config"] is None


@pytest.mark.parametrize(
    ("words", "env", "has_tokenizer"),
    [
        ([], {}, False),
        ([], _HOOK, True),
        (DECODE, _HOOK, True),
        (PREFILL, _HOOK, False),
        ([override(reasoning_parser="qwen3")], {}, True),
        ([*PREFILL, override(reasoning_parser="qwen3")], {}, False),
        ([override(reasoning_parser="qwen3", skip_tokenizer_init=True)], {}, False),
        ([override(skip_tokenizer_init=False)], {}, True),
        (["--guided-decoding-backend", "xgrammar"], {}, True),
        ([*PREFILL, "--guided-decoding-backend", "llguidance"], {}, True),
        ([override(guided_decoding_backend="xgrammar", skip_tokenizer_init=True)], {}, True),
    ],
)
def test_the_engine_reads_text_only_where_it_must(
    words: list[str], env: dict[str, str], has_tokenizer: bool
) -> None:
    """For constraints, the test processor and thinking budgets; a prefill has no use for the last two."""
    assert arguments_of(*words, env=env).values["skip_tokenizer_init"] is not has_tokenizer


def test_the_test_processor_wins_aloud_over_an_argument() -> None:
    """It cannot work otherwise."""
    settings = load(*TRTLLM, override(skip_tokenizer_init=True), env=_HOOK)
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
    settings = load(*TRTLLM, "--max-batch-size", "64")
    assert settings.model.model == "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
    assert (settings.engine.max_num_seqs, settings.engine.step_tokens) == (64, 8192)
    assert settings.graph.hang_timeout_s == 300
    assert settings.resolution["max_batch_size"].is_given
    assert not settings.resolution["max_num_tokens"].is_given
    assert load(*TRTLLM, "--max-num-tokens", "8").engine.step_tokens == 8
