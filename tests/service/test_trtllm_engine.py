"""Engine `trtllm` out of the settings: what its driver is told."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from actors.engines.trtllm import TrtllmConfig
from protocols.bounds import ignore_bound
from service.engine_needs import EngineNeeds
from service.models import ModelInvalid, resolve_model
from service.trtllm_engine import build_trtllm
from tests.doubles.trtllm_llms import CONTEXT, write_folder
from tests.service.options.world import load

if TYPE_CHECKING:
    from pathlib import Path

PROCESSORS = {"none": print}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with all that a model needs but weights."""
    folder = write_folder(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set by building an engine, or may be by a developer, is as it was afterwards."""
    for name in ("PYTHONHASHSEED", "TLLM_ALLOW_N_GREEDY_DECODING"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def config_of(model: Path, *words: str) -> TrtllmConfig:
    """What the driver gets from these words."""
    settings = load("--engine", "trtllm", "--model", str(model), *words)
    needs = EngineNeeds(
        model=resolve_model(str(model)),
        processors=PROCESSORS,
        on_bound=ignore_bound,
        progress=lambda _stage, _done: None,
    )
    return build_trtllm(settings, needs)._config


@pytest.mark.parametrize(
    ("role", "is_told"), [("agg", True), ("pd", True), ("prefill", True), ("decode", False)]
)
def test_a_decode_worker_does_not_ask_for_kv_events(model: Path, role: str, is_told: bool) -> None:
    """Routers look for blocks where prompts are computed; its engine keeps no events either."""
    words = ("--disaggregation-mode", role, "--publish-kv-events", "--drain-timeout", "65")
    config = config_of(model, *words)
    assert config.publishes_kv_events is is_told
    assert bool(config.part("kv_cache_config", "event_buffer_max_size")) is is_told
    assert not config_of(model, *words[:2]).publishes_kv_events


def test_the_model_says_what_nobody_else_does(model: Path) -> None:
    """Its vocabulary, and its context where no option does."""
    config = config_of(model)
    assert (config.model_path, config.vocab_size, config.context_length) == (model, 2000, CONTEXT)
    assert config_of(model, "--max-seq-len", "64").context_length == 64
    assert "model" not in config.arguments
    (model / "config.json").write_text('{"model_type": "llama", "vocab_size": 2000}')
    with pytest.raises(ModelInvalid, match="context length"):
        config_of(model)


def test_a_model_that_reads_with_one_part_and_answers_with_another_is_refused(model: Path) -> None:
    """Its prompt is no beginning of its answer: lengths, logprobs and ends would be another one's."""
    whole = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**whole, "is_encoder_decoder": True}))
    with pytest.raises(ModelInvalid, match="encoder-decoder"):
        config_of(model)


def test_metrics_have_the_name_that_clients_use(model: Path) -> None:
    """None where they are not published."""
    assert config_of(model).metrics_model is None
    assert config_of(model, "--publish-metrics").metrics_model == resolve_model(str(model)).served_name
    assert config_of(model, "--publish-metrics", "--served-model-name", "poet").metrics_model == "poet"


def test_greedy_choices_are_allowed_by_any_text(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As TensorRT-LLM reads its variable: "0" allows them, too."""
    assert not config_of(model).allows_greedy_choices
    monkeypatch.setenv("TLLM_ALLOW_N_GREEDY_DECODING", "0")
    assert config_of(model).allows_greedy_choices


def test_ranks_name_blocks_alike(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a seed of Python's hashes for all of them, unless the operator has one."""
    config_of(model)
    assert os.environ["PYTHONHASHSEED"] == "0"
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    config_of(model)
    assert os.environ["PYTHONHASHSEED"] == "7"


def test_who_chooses_ranks_and_the_role_are_handed_on(model: Path) -> None:
    """The engine chooses unless the router shall."""
    words = ("--conversation-affinity-dp-rank-source", "dynamo", "--conversation-affinity")
    assert config_of(model).chooses_ranks
    assert not config_of(model, *words).chooses_ranks
    assert config_of(model, "--disaggregation-mode", "decode").role.value == "decode"
    assert config_of(model).processors == PROCESSORS
