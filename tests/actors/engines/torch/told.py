"""What an engine says beside its tokens, held against one plain forward pass."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import torch

from protocols.steps import Candidate, Position

if TYPE_CHECKING:
    from tests.conformance.reader import EngineReader, Heard


class Told:
    """What an engine says beside its tokens. Per request: positions by choice, and those of the prompt."""

    def __init__(self, reader: EngineReader) -> None:
        self._reader = reader
        self.output: defaultdict[int, dict[int, list[Position]]] = defaultdict(lambda: defaultdict(list))
        self.prompt: dict[int, list[Position | None]] = {}

    async def read_step(self) -> None:
        """Positions come with their tokens, those of the prompt once."""
        for delta in (await self._reader.read_step()).deltas:
            assert delta.positions is None or len(delta.positions) == len(delta.token_ids)
            self.output[delta.engine_id][delta.index] += delta.positions or []
            if delta.prompt_positions is not None:
                assert delta.engine_id not in self.prompt
                self.prompt[delta.engine_id] = delta.prompt_positions

    async def read_to_end(self, *requests: Heard) -> None:
        while not all(request.is_ended for request in requests):
            await self.read_step()
        assert [request.error for request in requests] == [None] * len(requests)

    def check(self, model: Any, request: Heard, tolerance: float) -> None:
        """Everything that was said about one request, held against one forward pass per choice."""
        prompt, output = request.spec.prompt, request.spec.output
        logprobs = torch.empty(0)
        for choice, tokens in enumerate(request.token_ids):
            logprobs = plain_logprobs(model, (*prompt, *tokens))
            positions = self.output[request.engine_id][choice]
            if output.logprobs is None:
                assert positions == []
                continue
            assert len(positions) == len(tokens)
            for place, token in enumerate(tokens):
                row = logprobs[len(prompt) + place - 1]
                check_position(positions[place], token, output.logprobs, row, tolerance)
        if output.prompt_logprobs is None:
            assert request.engine_id not in self.prompt
            return
        first, *rest = self.prompt[request.engine_id]
        assert first is None
        assert len(rest) == len(prompt) - 1
        for place, position in enumerate(rest):
            assert position is not None
            check_position(position, prompt[place + 1], output.prompt_logprobs, logprobs[place], tolerance)


@torch.inference_mode()
def plain_logprobs(model: Any, tokens: tuple[int, ...]) -> torch.Tensor:
    """``[tokens, vocabulary]``: row p tells about token p + 1."""
    logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), dim=-1)


def check_position(
    position: list[Candidate], token: int, count: int, row: torch.Tensor, tolerance: float
) -> None:
    """The token first; then the ``count`` best without it, by falling logprob."""
    first, *rivals = position
    assert first.token_id == token
    best = row.topk(count).values.tolist()
    is_among = first.rank <= count
    assert len(rivals) == count - is_among
    assert token not in [rival.token_id for rival in rivals]
    above, near = ((row > row[token] + step).sum().item() for step in (tolerance, -tolerance))
    assert 1 + above <= first.rank <= near
    for candidate in position:
        assert candidate.logprob == pytest.approx(row[candidate.token_id].item(), abs=tolerance)
    for rival in rivals:
        assert rival.logprob == pytest.approx(best[rival.rank - 1], abs=tolerance)
