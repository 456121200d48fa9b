"""The engine without a model serves whatever the frontend's tokenizer makes of a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.built_in import built_in_model
from tests.e2e.stacks import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(120)]


def test_the_synthetic_engine_takes_prompts_of_the_built_in_model(tmp_path: Path) -> None:
    """Its vocabulary is the model's: 49,152 ids, not a number of its own."""
    built_in_model()
    options = ["--engine", "synthetic", "--model", "smollm2-135m", "--synthetic-step-ms", "0"]
    with Stack(tmp_path / "stack", options) as stack:
        status, body = stack.chat("hi, what is 34519 in words?", max_tokens=8)
        assert status == 200, body
        assert body["usage"]["completion_tokens"] == 8
