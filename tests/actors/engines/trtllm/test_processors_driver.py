"""Logits processors all the way: asked of the driver, run by the engine's process, told with its steps."""

from __future__ import annotations

from collections import Counter
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import pytest

from actors.engines.trtllm import TrtllmConfig, TrtllmEngine
from protocols.spec import GenerationSpec, ProcessorEntry, Sampling, StopRules
from protocols.steps import Delta, EngineId
from tests.actors.engines.torch.hostile_processors import without_lines
from tests.actors.engines.trtllm.operators_processors import Broken, Counting
from tests.doubles.trtllm_site import double_on_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.timeout(120), pytest.mark.anyio]

STEERED, FAILING, PLAIN = EngineId(1), EngineId(2), EngineId(3)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[TrtllmEngine]:
    """On the double, with a tiny model."""
    from tests.actors.engines.torch.tiny_models import make_model, save

    folder = save(make_model("llama", eos_token_id=2), tmp_path / "tiny")
    config = TrtllmConfig(
        model_path=folder,
        vocab_size=320,
        context_length=128,
        arguments={"skip_tokenizer_init": True, "max_batch_size": 8},
        processors={"Counting": Counting, "Broken": Broken},
    )
    # Before the engine, which would end it with its own processes; other tests need it, too.
    resource_tracker.ensure_running()
    with double_on_path():
        engine = TrtllmEngine(config, None)
        try:
            await engine.start()
            yield engine
        finally:
            await engine.stop()


def spec(*processors: ProcessorEntry, n: int = 1) -> GenerationSpec:
    stop = StopRules(max_tokens=6, eos_token_ids=frozenset({2}))
    sampling = Sampling(temperature=1.0, seed=3)
    return GenerationSpec(prompt=(5, 6, 7), stop=stop, sampling=sampling, processors=processors, n=n)


async def test_each_request_gets_its_own(engine: TrtllmEngine) -> None:
    """Steered choices, a failure in words and without a token, and a neighbour that knows nothing of it."""
    engine.submit(STEERED, spec(ProcessorEntry(name="Counting", options={"begin": 10}), n=2))
    engine.submit(FAILING, spec(ProcessorEntry(name="Broken", options={"kind": "raising"})))
    engine.submit(PLAIN, spec())
    deltas: list[Delta] = []
    calls: Counter[str] = Counter()
    while len([delta for delta in deltas if delta.is_last]) < 3:
        step = await engine.next_step()
        deltas += step.deltas
        # One step may tell of several results, each with uses of its own.
        for use in step.processors:
            calls[use.name] += use.tokens

    def said(engine_id: EngineId, index: int = 0) -> list[int]:
        mine = [delta for delta in deltas if (delta.engine_id, delta.index) == (engine_id, index)]
        return [token for delta in mine for token in delta.token_ids]

    assert said(STEERED, 0) == said(STEERED, 1) == [10, 11, 12, 13, 14, 15]
    assert said(FAILING) == []
    assert len(said(PLAIN)) == 6
    told = {delta.engine_id: delta.error for delta in deltas if delta.is_last}
    assert told[STEERED] is told[PLAIN] is None
    assert without_lines(told[FAILING]) == (
        "logits processor 'Broken' failed (ValueError at hostile_processors.py:LINE)"
    )
    assert calls == {"Counting": 12, "Broken": 1}


async def test_a_call_that_fails_after_it_sent_is_no_second_choice(
    engine: TrtllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library raises what waits for anybody, and its engine goes on with what nobody reads."""
    driver: Any = engine
    executor, library = driver._loading.loaded.llm._executor, driver._loading.loaded.library
    send, sent = executor._process.send, list[object]()

    def send_and_meet(request: object) -> None:
        send(request)
        if not sent:
            executor._error_queue.put(library.RequestError("somebody else's"))
        sent.append(request)

    monkeypatch.setattr(executor._process, "send", send_and_meet)
    # Nor does it heed that this shall end.
    monkeypatch.setattr(executor, "abort_request", lambda _: None)
    engine.submit(STEERED, spec(ProcessorEntry(name="Counting", options={"begin": 10})))
    deltas: list[Delta] = []
    while not any(delta.is_last for delta in deltas):
        deltas += (await engine.next_step()).deltas
    assert len(sent) == 2
    assert [delta.error for delta in deltas if delta.is_last] == [None]
    assert [token for delta in deltas for token in delta.token_ids] == [10, 11, 12, 13, 14, 15]
