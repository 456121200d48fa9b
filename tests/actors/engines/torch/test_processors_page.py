"""The page about logits processors: its example is what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from actors.asked_processors import LONGEST_OPTIONS, MOST_PROCESSORS, asked_processors
from actors.engines.torch.lanes import FAIR_S, TURN_S
from actors.engines.torch.side_lane import MOST_ALONE
from actors.engines.torch.steering import GIVE_UP_S
from protocols.spec import GenerationSpec, Sampling, StopRules
from service.processors.imports import load_processors
from tests.actors.engines.torch.hostile_processors import BROKEN
from tests.service.options.world import load

if TYPE_CHECKING:
    from tests.actors.engines.torch.conftest import Opener

PAGE = (Path(__file__).parents[4] / "docs" / "logits-processors.md").read_text(encoding="utf-8")
WORDS = re.sub(r"\s+", " ", PAGE)


def block(language: str, place: int = 0) -> str:
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return blocks[place]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's module, where Python finds it."""
    path = tmp_path / "my_processors.py"
    path.write_text(block("python"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


@pytest.mark.anyio
@pytest.mark.usefixtures("module")
async def test_the_example_works_as_written(open_engine: Opener, tmp_path: Path) -> None:
    """Registered by the page's words, chosen by its request: it does what the sampling option does."""
    words = shlex.split(block("bash").replace("\\\n", " "))
    settings = load(*words[words.index("--engine") :])
    file = tmp_path / "worker.yaml"
    file.write_text(block("yaml"), encoding="utf-8")
    assert load("--config", str(file)).engine.processors == settings.engine.processors
    factories = load_processors(settings, "torch")
    body = json.loads(shlex.split(block("bash", 1))[-1])
    (cool,) = asked_processors(body["nvext"]["annotations"], factories)
    (cold,) = asked_processors(["logits-processor:cold"], factories)

    def spec(temperature: float, *processors: object) -> GenerationSpec:
        sampling = Sampling(temperature=temperature, seed=11)
        stop = StopRules(max_tokens=40)
        return GenerationSpec(prompt=(5, 6, 7), stop=stop, sampling=sampling, processors=processors)  # type: ignore[arg-type]

    async with open_engine(processors=factories) as reader:
        plain = await reader.complete(spec(1.0))
        for entry, temperature in ((cool, 0.5), (cold, 0.3)):
            by_processor = await reader.complete(spec(1.0, entry))
            by_option = await reader.complete(spec(temperature))
            assert by_processor.tokens == by_option.tokens != plain.tokens


@pytest.mark.usefixtures("module")
def test_the_example_changes_the_row_in_place() -> None:
    """And refuses a temperature that makes no sense, as its request would be."""
    from my_processors import Temperature  # type: ignore[import-not-found]

    row = torch.linspace(-4, 4, 9)
    Temperature(2.0)([1], row)
    assert torch.equal(row, torch.linspace(-4, 4, 9) / 2)
    with pytest.raises(ValueError, match="above 0"):
        Temperature(0)


def test_every_failure_is_on_the_page() -> None:
    """In the words that a request gets."""
    for _, told in BROKEN.values():
        words = re.sub(r"\(\w+ at hostile_processors.py:LINE\)", "(ValueError at my_processors.py:11)", told)
        assert f"`{words}`" in WORDS


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    """Turns, patience, limits."""
    assert f"together, {TURN_S * 1000:g} ms at most" in WORDS
    assert f"A request may take {FAIR_S * 1000:g} ms a token" in WORDS
    assert f"`did not return within {GIVE_UP_S:g} s`" in WORDS
    assert f"At most {MOST_ALONE} threads" in WORDS
    assert f"at most {MOST_PROCESSORS}, each once" in WORDS
    assert f"at most {LONGEST_OPTIONS:,} bytes" in WORDS
