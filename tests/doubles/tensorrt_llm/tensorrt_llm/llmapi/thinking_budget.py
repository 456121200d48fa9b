"""How many tokens a model may think before the end of its thoughts is forced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorrt_llm.sampling_params import LogitsProcessor, SamplingParams

if TYPE_CHECKING:
    import torch

    from tensorrt_llm.tokenizing import Tokenizer

_START, _END = "<think>", "</think>"


class ThinkingBudgetLogitsProcessor(LogitsProcessor):
    """Counts tokens after the start of the thoughts; from the budget on it forces their end, id by id.

    Thoughts whose start is not among the ids are never ended.
    """

    def __init__(self, budget: int, start: list[int], end: list[int]) -> None:
        """budget: in tokens. start, end: the ids of the two marks."""
        self.budget = budget
        self.start = start
        self.end = end

    def __call__(
        self,
        req_id: int,
        logits: torch.Tensor,
        token_ids: list[list[int]],
        stream_ptr: int | None,
        client_id: int | None,
    ) -> None:
        """Leave one id possible where the end is due; each beam has its own thoughts."""
        for beam, ids in enumerate(token_ids):
            due = self._due(ids)
            if due is not None:
                row = logits[beam]
                kept = row[..., due].clone()
                row[...] = float("-inf")
                row[..., due] = kept

    def _due(self, ids: list[int]) -> int | None:
        begun = _last_after(ids, self.start)
        if begun is None or _last_after(ids[begun:], self.end) is not None:
            return None
        beyond = len(ids) - begun - self.budget
        return self.end[beyond] if 0 <= beyond < len(self.end) else None


def add_thinking_budget_logits_processor(
    sampling_params: SamplingParams,
    *,
    reasoning_parser: str | None,
    tokenizer: Tokenizer | None,
    chat_template_kwargs: dict[str, Any] | None = None,
) -> None:
    """Attach the processor once, when there is a budget. Raises ValueError without a parser or tokenizer."""
    if sampling_params.thinking_token_budget is None:
        return
    if reasoning_parser is None or tokenizer is None:
        raise ValueError("thinking_token_budget needs a reasoning_parser and a tokenizer")
    there = sampling_params.logits_processor
    processors = there if isinstance(there, list) else [] if there is None else [there]
    if not any(isinstance(each, ThinkingBudgetLogitsProcessor) for each in processors):
        start, end = (tokenizer.encode(mark, add_special_tokens=False) for mark in (_START, _END))
        added = ThinkingBudgetLogitsProcessor(sampling_params.thinking_token_budget, start, end)
        sampling_params.logits_processor = [*processors, added]


def _last_after(ids: list[int], mark: list[int]) -> int | None:
    """Return where the ids go on after the last `mark`, None without one."""
    starts = range(len(ids) - len(mark), -1, -1)
    return next((at + len(mark) for at in starts if mark and ids[at : at + len(mark)] == mark), None)
