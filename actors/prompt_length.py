"""The length of a prompt, as the value of a refusal."""

from __future__ import annotations


class PromptLength(int):
    """Reads as a length in an error text; prompts are never shown."""

    def __repr__(self) -> str:
        return f"a prompt of {int(self)} tokens"
