"""The estimate from files agrees with what the loaded model turns out to need."""

from __future__ import annotations

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
