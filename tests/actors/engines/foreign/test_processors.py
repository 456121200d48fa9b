"""One logits processor at work: what it may do, and how each fault is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from actors.engines.foreign.processors import Processor, processors_of
from actors.engines.foreign.steering_failed import SteeringFailed
from protocols.spec import ProcessorEntry
from tests.actors.engines.torch.hostile_processors import BROKEN, ODD, Temperature, without_lines


def processor(factory: Any, **options: object) -> Processor:
    return Processor(ProcessorEntry(name="mine", options=options), factory)


def row() -> torch.Tensor:
    return torch.linspace(-4.0, 4.0, 320)


def test_it_changes_the_row_with_the_options_of_its_request() -> None:
    """In place, once for every call."""
    changed, mine = row(), processor(Temperature, temperature=2.0)
    mine.change(changed, [1, 2])
    mine.change(changed, [1, 2, 3])
    assert torch.equal(changed, row() / 2.0 / 2.0)


@pytest.mark.parametrize("name", BROKEN)
def test_every_fault_is_told_by_name(name: str) -> None:
    """With the processor's name, what it did and where, and never with the text of its error."""
    factory, told = BROKEN[name]
    with torch.inference_mode(), pytest.raises(SteeringFailed) as caught:
        processor(factory).change(row(), [1, 2])
    assert without_lines(str(caught.value)) == f"logits processor 'mine' {told}"


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_let_pass(name: str) -> None:
    """The row stays usable; what it did to a row of an earlier token is its own business."""
    mine, changed = processor(ODD[name]), row()
    with torch.inference_mode():
        for _ in range(3):
            mine.change(changed.copy_(row()), [1, 2])
    assert torch.equal(changed[1:], row()[1:])


def test_every_choice_has_an_instance_of_its_own() -> None:
    """And options of its own, whatever another instance did with them."""
    seen: list[Any] = []

    def factory(words: list[int]) -> Any:
        seen.append(words)
        words.append(9)
        return lambda input_ids, logits: None

    entries = (
        ProcessorEntry(name="a", options={"words": [1]}),
        ProcessorEntry(name="b", options={"words": [2]}),
    )
    for _ in range(2):
        for mine in processors_of(entries, {"a": factory, "b": factory}):
            mine.change(row(), [1])
            mine.change(row(), [1, 2])
    assert seen == [[1, 9], [2, 9], [1, 9], [2, 9]]


def test_what_it_costs_is_told_once() -> None:
    """Calls and seconds since the last time, a failed call included."""
    mine = processor(Temperature)
    assert mine.take_use() == (0, 0.0)
    for _ in range(3):
        mine.change(row(), [1])
    calls, seconds = mine.take_use()
    assert calls == 3
    assert seconds > 0
    assert mine.take_use() == (0, 0.0)
    broken = processor(BROKEN["raising"][0])
    with pytest.raises(SteeringFailed):
        broken.change(row(), [1])
    assert broken.take_use()[0] == 1
