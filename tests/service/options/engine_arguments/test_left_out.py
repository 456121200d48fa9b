"""What has no effect for TensorRT-LLM is not handed on to it: newer releases may refuse it, or obey it."""

from __future__ import annotations

import json

import pytest

from tests.service.options.world import load


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("enable_lora", {"enable_lora": True, "lora_config": {}}),
        ("enable_lora", {"enable_lora": True}),
        ("num_postprocess_workers", {"num_postprocess_workers": 2}),
        ("postprocess_tokenizer_dir", {"postprocess_tokenizer_dir": "somewhere"}),
    ],
)
def test_it_is_said_once_and_left_out(name: str, beside: dict[str, object]) -> None:
    """Neither among the values that are printed, nor among those that `LLM` gets; the others stay."""
    words = ("--engine", "trtllm", f"--override-engine-args={json.dumps({**beside, 'max_batch_size': 7})}")
    settings = load(*words)
    arguments = settings.engine_arguments
    assert arguments is not None
    assert len(settings.warnings) == 1
    assert name not in arguments.besides_model
    assert name not in dict(arguments.origins)
    assert arguments.besides_model["max_batch_size"] == 7
    assert set(beside) - {name} <= set(arguments.besides_model)
