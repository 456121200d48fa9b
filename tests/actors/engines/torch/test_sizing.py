"""The estimate from files agrees with what the loaded model turns out to need."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
import transformers

from actors.engines.torch import selftest, sizing
from actors.engines.torch.attention import IMPLEMENTATION, attention_function
from tests.actors.engines.torch import tiny_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("kind", tiny_models.RUNS)
def test_the_estimate_is_right_before_loading(kind: str, model_folder: Callable[[str], Path]) -> None:
    """K/V bytes are exact for every kind of layer; weights are those of the files."""
    model = tiny_models.make_model(kind)
    transformers.AttentionInterface.register(IMPLEMENTATION, attention_function)
    model.set_attn_implementation(IMPLEMENTATION)
    before = sizing.estimate(model_folder(kind), model.config, torch.float32, is_packed=False)
    with torch.inference_mode():
        shapes = selftest.probe_shapes(model, model.config, torch.device("cpu"))
    after = sizing.needs_after_loading(shapes, tiny_models.VOCAB_SIZE, torch.float32)
    assert before.kv_per_token == after.kv_per_token
    assert before.scratch_per_token == after.scratch_per_token
    assert before.weights == sum(parameter.nbytes for parameter in model.parameters())


# A vocabulary that is large beside everything else, so that logits are what the process grows by.
_VOCAB_SIZE, _ROWS = 60_000, 24
_FULL_STEP = """
import asyncio, sys
from pathlib import Path
from actors.engines.torch import TorchConfig, TorchEngine
from protocols.spec import GenerationSpec, Output, ProcessorEntry, Sampling, StopRules
from protocols.steps import EngineId

def peak(reset):
    # The kernel's own high-water mark; 5 sets it to what is in use now.
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

def raised():
    def change(ids, row):
        row.add_(0.1)
    return change

async def main(folder, rows):
    config = TorchConfig(
        model_path=Path(folder), max_num_seqs=rows, kv_pool_tokens=8192, threads=1,
        processors={"raised": raised},
    )
    engine = TorchEngine(config)
    await engine.start()

    async def run(count, tokens, **fields):
        for number in range(count):
            spec = GenerationSpec(prompt=tuple(range(90)), stop=StopRules(max_tokens=tokens), **fields)
            engine.submit(EngineId(number), spec)
        while count:
            for delta in (await engine.next_step()).deltas:
                assert delta.error is None, delta.error
                count -= delta.is_last

    await run(1, 2)
    before = peak(True)
    await run(
        rows, 6, cache_salt="",
        sampling=Sampling(temperature=4.0, top_p=0.99, repetition_penalty=1.2, frequency_penalty=0.1),
        output=Output(logprobs=20, prompt_logprobs=5), processors=(ProcessorEntry(name="raised"),),
    )
    print(peak(False) - before)
    await engine.stop()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.timeout(120)
def test_a_step_that_wants_everything_fits_into_the_plan(tmp_path: Path) -> None:
    """All rows with logprobs, penalties, processors and a wide nucleus: no more than the plan set aside."""
    model = tiny_models.make_model("llama", vocab_size=_VOCAB_SIZE, hidden_size=16, num_hidden_layers=1)
    folder = tiny_models.save(model, tmp_path)
    needs = sizing.estimate(folder, model.config, torch.float32, is_packed=True)
    argv = [sys.executable, "-c", _FULL_STEP, str(folder), str(_ROWS)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    assert int(done.stdout) <= _ROWS * needs.row + 64 * needs.prompt_row
