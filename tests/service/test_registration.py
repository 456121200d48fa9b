"""What routers and frontends are told of an engine: all that it said at its start, and nothing else."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pytest

from actors.settings import GraphSettings
from protocols.engine import EngineInfo
from service.framework import build_worker_config
from service.plan import ServingPlan
from service.registration import engine_config
from tests.service.worker import PATIENT

PLAN = ServingPlan(
    graph=GraphSettings(),
    budgets=PATIENT,
    worker_config=build_worker_config({"namespace": "test", "model_input": None}),
    model_path="/models/one",
    served_model_name="a name",
)
# No two figures are alike.
INFO = EngineInfo(
    model="of the engine",
    context_length=4096,
    max_num_seqs=17,
    vocab_size=32_000,
    max_num_batched_tokens=2048,
    max_prompt_tokens=1023,
    block_tokens=32,
    total_blocks=777,
    data_parallel_size=3,
)
PUBLISHED = {
    "context_length": 4096,
    "kv_cache_block_size": 32,
    # Of one rank, as routers count them.
    "total_kv_blocks": 777,
    "max_num_seqs": 17,
    "max_num_batched_tokens": 2048,
    "data_parallel_size": 3,
}


def test_all_that_routers_count_with_is_registered() -> None:
    """One figure less, and a router balances by a default; the rest is left to the framework."""
    config = engine_config(PLAN, INFO)
    assert (config.model, config.served_model_name) == ("/models/one", "a name")
    assert config.runtime_data is None
    assert config.llm is not None
    assert {name: value for name, value in asdict(config.llm).items() if value is not None} == PUBLISHED


def test_an_engine_without_a_paged_cache_promises_none() -> None:
    """A router would reckon with blocks that are not there."""
    config = engine_config(PLAN, EngineInfo(model="m", context_length=2, max_num_seqs=1, vocab_size=3))
    assert config.llm is not None
    said = {name: value for name, value in asdict(config.llm).items() if value is not None}
    assert said == {"context_length": 2, "max_num_seqs": 1, "data_parallel_size": 1}


@dataclass
class OlderRegistration:
    """Of a framework that knows less."""

    context_length: int | None = None
    total_kv_blocks: int | None = None


def test_a_framework_that_knows_less_is_told_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not take a field that it has not."""
    monkeypatch.setattr("service.registration.LlmRegistration", OlderRegistration)
    llm: object = engine_config(PLAN, INFO).llm
    assert llm == OlderRegistration(4096, 777)
