"""Logits processors in another process, where nothing is shared but the spool."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from actors.engines.trtllm.processors.factories import EngineProcessor, Factories, attach
from actors.engines.trtllm.processors.spool import Spool
from protocols.spec import GenerationSpec, ProcessorEntry, StopRules
from protocols.steps import EngineId
from service.processors import hello
from tests.actors.engines.torch.hostile_processors import BROKEN, without_lines
from tests.actors.engines.trtllm.engine_process import EngineProcess
from tests.actors.engines.trtllm.operators_processors import Broken, Counting, Temperature

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)

END = 2
PROMPT = (5, 6, 7)


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    """One for all; whatever the processors did, it is alive at the end."""
    process = EngineProcess()
    yield process
    assert process.stop()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """In a folder of the test."""
    spool = Spool.make([tmp_path])
    yield spool
    spool.remove()


def attached(spool: Spool, *entries: ProcessorEntry, engine_id: int = 1, n: int = 1) -> EngineProcessor:
    factories = {"Broken": Broken, "Counting": Counting, "Temperature": Temperature}
    stop = StopRules(max_tokens=40, eos_token_ids=frozenset({END}))
    spec = GenerationSpec(prompt=PROMPT, stop=stop, processors=entries, n=n)
    everything = Factories.of({**factories, hello.NAME: hello.factory()})
    processor = attach(spec, EngineId(engine_id), everything, spool, is_overlapped=False)
    assert processor is not None
    return processor


def answer(engine: EngineProcess, most: int = 6) -> list[int]:
    """Greedy, up to the end."""
    said: list[int] = []
    while len(said) < most and END not in said[-1:]:
        said.append(engine.token(1, [*PROMPT, *said]))
    return said


def test_it_steers_and_what_it_cost_comes_back(engine: EngineProcess, spool: Spool) -> None:
    """While the request runs, and by the processors' names."""
    engine.begin(attached(spool, ProcessorEntry(name="Counting", options={"begin": 10})))
    assert answer(engine, 3) == [10, 11, 12]
    (use,) = spool.read(EngineId(1)).uses
    assert (use.name, use.tokens) == ("Counting", 3)
    assert engine.token(1, [*PROMPT, 10, 11, 12]) == 13
    assert [use.tokens for use in spool.read(EngineId(1)).uses] == [1]


@pytest.mark.parametrize("kind", BROKEN)
def test_every_fault_comes_back_in_words(engine: EngineProcess, spool: Spool, kind: str) -> None:
    """And the answer ends at once."""
    engine.begin(attached(spool, ProcessorEntry(name="Broken", options={"kind": kind})))
    assert answer(engine) == [END]
    told = f"logits processor 'Broken' {BROKEN[kind][1]}"
    assert without_lines(spool.read(EngineId(1)).failure) == told


def test_a_request_that_fails_leaves_the_others_alone(engine: EngineProcess, spool: Spool) -> None:
    """At the same engine, with the same spool."""
    good = attached(spool, ProcessorEntry(name="Counting", options={"begin": 10}), engine_id=1)
    bad = attached(spool, ProcessorEntry(name="Broken", options={"kind": "raising"}), engine_id=2)
    for processor, expected in ((good, [10, 11]), (bad, [END])):
        engine.begin(processor)
        assert answer(engine, 2) == expected
    assert spool.read(EngineId(1)).failure is None
    assert spool.read(EngineId(2)).failure is not None


def test_choices_take_turns(engine: EngineProcess, spool: Spool) -> None:
    """Each from its own beginning."""
    engine.begin(attached(spool, ProcessorEntry(name="Counting", options={"begin": 10}), n=2))
    assert [engine.token(choice, PROMPT) for choice in (1, 2)] == [10, 10]
    assert [engine.token(choice, [*PROMPT, 10]) for choice in (1, 2)] == [11, 11]
    assert spool.read(EngineId(1)).uses[0].tokens == 4


def test_every_rank_steers_and_one_counts(engine: EngineProcess, spool: Spool) -> None:
    """A tensor-parallel engine pickles the processor to all of its processes, which must agree."""
    processor = attached(spool, ProcessorEntry(name="Counting", options={"begin": 10}))
    other = EngineProcess()
    for rank in (engine, other):
        rank.begin(processor)
    assert answer(engine, 3) == answer(other, 3) == [10, 11, 12]
    assert other.stop()
    assert spool.read(EngineId(1)).uses[0].tokens == 3


def test_a_spool_that_is_gone_disturbs_nobody(engine: EngineProcess, spool: Spool) -> None:
    """The driver left, or the request ended, while the engine goes on with it."""
    engine.begin(attached(spool, ProcessorEntry(name="Counting", options={"begin": 10})))
    spool.close(EngineId(1))
    assert answer(engine, 2) == [10, 11]
    spool.remove()
    assert engine.token(1, [*PROMPT, 10, 11]) == 12


def test_the_test_hook_says_its_answer_and_ends(engine: EngineProcess, spool: Spool) -> None:
    """The framework's own processor, which is handed ids and needs no tokenizer there."""
    engine.begin(
        attached(
            spool, ProcessorEntry(name=hello.NAME, options={"token_ids": [30, 31, 40], "eos_token_id": END})
        )
    )
    assert answer(engine) == [30, 31, 40, END]


def test_the_driver_attaches_without_torch() -> None:
    """Only the engine's process needs it, and the tokenizer nobody."""
    code = """
import sys
from actors.engines.trtllm.processors.factories import Factories, attach
from actors.engines.trtllm.processors.spool import Spool
from protocols.spec import GenerationSpec, ProcessorEntry, StopRules
spool = Spool.make()
entry = ProcessorEntry(name="x")
spec = GenerationSpec(prompt=(1,), stop=StopRules(max_tokens=1), processors=(entry,))
assert attach(spec, 1, Factories.of({"x": dict}), spool, is_overlapped=True) is not None
spool.remove()
print([name for name in ("torch", "transformers", "tensorrt_llm") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
