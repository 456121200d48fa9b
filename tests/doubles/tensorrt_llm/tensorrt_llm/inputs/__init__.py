"""What a prompt may look like."""

from __future__ import annotations

from typing import TypedDict

from tensorrt_llm.inputs.utils import default_multimodal_input_loader


class TextPrompt(TypedDict, total=False):
    """A text that the LLM tokenises."""

    prompt: str
    multi_modal_data: dict[str, object]


class TokensPrompt(TypedDict, total=False):
    """Ids, Python's own integers."""

    prompt_token_ids: list[int]
    multi_modal_data: dict[str, object]


PromptInputs = str | list[int] | TextPrompt | TokensPrompt

__all__ = ["PromptInputs", "TextPrompt", "TokensPrompt", "default_multimodal_input_loader"]
