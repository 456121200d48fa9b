"""Promises of the built-in model itself, with its real weights from the user's cache."""

from pathlib import Path
from typing import Any

import pytest

from tests.built_in import built_in_model

# Fetching 92 MB and converting them happens once a machine; the first import of transformers compiles it.
pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def folder() -> Path:
    return built_in_model()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    """Load the tokenizer as a user of the folder would."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def prompt_of(tokenizer: Any) -> Any:
    """Render the question as the frontend does; text."""
    return tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)


def test_a_chat_is_rendered_as_the_model_was_trained(tokenizer: Any) -> None:
    """The template adds the default system message, and its marks are single tokens."""
    prompt = prompt_of(tokenizer)
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    assert (ids.count(1), ids.count(2)) == (3, 2)


def test_numbers_are_split_into_digits(tokenizer: Any) -> None:
    """The digits of a number are tokens of their own, as in the model's training."""
    assert tokenizer.tokenize("In 2024") == ["In", "Ġ", "2", "0", "2", "4"]


def test_the_model_answers_a_question(folder: Path, tokenizer: Any) -> None:
    """Greedy decoding says Paris and stops at its own end mark."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
    )
    model, report = loaded
    assert not any(report.values()), report
    prompt = tokenizer(prompt_of(tokenizer), return_tensors="pt", add_special_tokens=False)
    answer = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0][prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
