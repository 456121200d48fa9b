"""The page about logits processors, where it speaks of TensorRT-LLM: it says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from actors.engines.trtllm.processors.factories import Factories, attach
from actors.engines.trtllm.processors.patience import GIVE_UP_S
from actors.engines.trtllm.processors.spool import Spool
from actors.engines.trtllm.processors.spool_pages import BLOCK_BYTES
from actors.engines.trtllm.processors.steered import BEAMS, LEFT_OUT
from protocols.spec import GenerationSpec, ProcessorEntry, StopRules
from protocols.steps import EngineId
from service.processors.imports import ENGINES_WITH_PROCESSORS, load_processors
from tests.service.options.world import load, with_tensorrt

PAGE = (Path(__file__).parents[4] / "docs" / "logits-processors.md").read_text(encoding="utf-8")
SECTION = re.sub(r"\s+", " ", PAGE.split("## With TensorRT-LLM")[1].split("\n## ")[0])


def test_the_example_of_the_page_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered as the page does, and called as the engine calls."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my_processors.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("--engine", "trtllm", "--logits-processor", "cool=my_processors:Temperature")
    factories = Factories.of(load_processors(load(*words, installed=with_tensorrt()), "trtllm"))
    entry = ProcessorEntry(name="cool", options={"temperature": 2.0})
    spec = GenerationSpec(prompt=(1, 2), stop=StopRules(max_tokens=4), processors=(entry,))
    processor = attach(spec, EngineId(1), factories, Spool.make([tmp_path]), is_overlapped=True)
    assert processor is not None
    rows = torch.linspace(-4, 4, 9).view(1, 1, 9)
    processor(1, rows, [[1, 2]], None, None)
    assert torch.equal(rows.view(9), torch.linspace(-4, 4, 9) / 2)


def test_its_numbers_and_words_are_those_of_the_code() -> None:
    """Patience, the size of a file, and what requests are told."""
    assert f"does not return for {GIVE_UP_S:g} seconds" in SECTION
    assert f"It has {BLOCK_BYTES // 1024} kB for each rank" in SECTION
    for words in re.findall(r"the request, `([^`]+)`", SECTION):
        assert any(words in told for told in (BEAMS, LEFT_OUT))
    assert all(f"--engine {name}" in PAGE for name in ENGINES_WITH_PROCESSORS)
