"""What engines promise that tell how likely their tokens were."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from protocols.spec import Output, Sampling
from tests.conformance.reader import EngineReader, changed, make_spec, most_choices

if TYPE_CHECKING:
    from protocols.steps import Position

# Positions of the same text, computed alone or among neighbours.
SAME = 1e-4


class LogprobPromises:
    """The reader holds every position against its own token."""

    @pytest.mark.parametrize("asked", [0, 1, 5])
    async def test_every_token_has_its_value(self, reader: EngineReader, asked: int) -> None:
        """For every choice, beside the tokens that would have come anyway."""
        n = most_choices(reader)
        silent = await reader.complete(make_spec(n=n))
        heard = await reader.complete(changed(make_spec(n=n), output=Output(logprobs=asked)))
        assert heard.token_ids == silent.token_ids
        assert [len(positions) for positions in heard.positions] == [8] * n
        assert all(position for positions in heard.positions for position in positions)

    async def test_a_greedy_token_is_the_most_likely_one(self, reader: EngineReader) -> None:
        """Rank 1, and no rival above it."""
        spec = changed(make_spec(), sampling=Sampling(), output=Output(logprobs=3))
        heard = await reader.complete(spec)
        assert [position[0].rank for position in heard.positions[0]] == [1] * 8

    async def test_they_are_the_models_own(self, reader: EngineReader) -> None:
        """Before temperature, penalties and limits: the first position is the same however it is sampled."""
        settings = [Sampling(), Sampling(temperature=2.0, seed=3), Sampling(temperature=1.0, top_k=1)]
        settings.append(Sampling(repetition_penalty=1.5, presence_penalty=1.0, frequency_penalty=-1.0))
        most = reader.engine.capabilities.max_logprobs or 0
        found: list[dict[int, float]] = []
        for sampling in settings:
            spec = changed(make_spec(max_tokens=1), sampling=sampling, output=Output(logprobs=most))
            heard = await reader.complete(spec)
            found.append({each.token_id: each.logprob for each in heard.positions[0][0]})
        shared = set.intersection(*(set(each) for each in found))
        assert shared
        for token in shared:
            assert max(each[token] for each in found) - min(each[token] for each in found) < SAME

    async def test_a_prompt_is_told_with_the_first_token(self, reader: EngineReader) -> None:
        """One entry for each token, also of a prompt that lies in the cache, also among neighbours."""
        if reader.engine.capabilities.no_prompt_logprobs:
            pytest.skip("this engine tells nothing about prompts")
        prompt = tuple(range(20, 60))
        spec = changed(make_spec(prompt, n=most_choices(reader)), output=Output(prompt_logprobs=2))
        first = await reader.complete(spec)
        neighbour = reader.submit(make_spec((9, 8, 7, 6), max_tokens=12))
        again = await reader.complete(spec)
        await reader.read_to_end(neighbour)
        assert len(first.prompt_positions) == len(again.prompt_positions) == len(prompt)
        for one, other in zip(first.prompt_positions[1:], again.prompt_positions[1:], strict=True):
            assert one
            assert other
            assert math.isclose(one[0].logprob, other[0].logprob, abs_tol=SAME)

    async def test_output_and_prompt_agree(self, reader: EngineReader) -> None:
        """What was said of a token when it was chosen is said of it when it is part of a prompt."""
        if reader.engine.capabilities.no_prompt_logprobs:
            pytest.skip("this engine tells nothing about prompts")
        said = await reader.complete(changed(make_spec(), output=Output(logprobs=0)))
        prompt = (*said.spec.prompt, *said.tokens)
        asked = await reader.complete(
            changed(make_spec(prompt, max_tokens=1), output=Output(prompt_logprobs=0))
        )
        told = asked.prompt_positions[len(said.spec.prompt) :]
        assert [_own(position) for position in told] == pytest.approx(
            [_own(position) for position in said.positions[0]], abs=SAME
        )


def _own(position: Position | None) -> float:
    assert position
    return position[0].logprob
