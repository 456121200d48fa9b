"""What engines promise whose tokens follow from a prompt and a seed."""

from __future__ import annotations

from protocols.spec import Sampling
from protocols.steps import FinishReason
from tests.conformance.reader import EngineReader, changed, make_spec, most_choices


class SamplingPromises:
    """Choices, each with a life of its own."""

    async def test_choices_are_answers_of_their_own(self, reader: EngineReader) -> None:
        """Each draws with a seed of its own; the first one says what a single choice would."""
        hot = Sampling(temperature=2.0, seed=11)
        alone = await reader.complete(changed(make_spec(max_tokens=16), sampling=hot))
        several = await reader.complete(
            changed(make_spec(max_tokens=16, n=most_choices(reader)), sampling=hot)
        )
        assert several.token_ids[0] == alone.tokens
        assert len({tuple(tokens) for tokens in several.token_ids}) == several.spec.n

    async def test_greedy_choices_are_equal(self, reader: EngineReader) -> None:
        """Nothing is drawn, so nothing differs."""
        heard = await reader.complete(changed(make_spec(n=most_choices(reader)), sampling=Sampling()))
        assert {tuple(tokens) for tokens in heard.token_ids} == {tuple(heard.token_ids[0])}

    async def test_choices_end_on_their_own(self, reader: EngineReader) -> None:
        """One that meets its stop id ends there; the others go on, and the request with the last of them."""
        hot = Sampling(temperature=2.0, seed=11)
        spec = changed(make_spec(max_tokens=16, n=most_choices(reader)), sampling=hot)
        reference = await reader.complete(spec)
        # A token that some choice says early and some choice never.
        stop_id = next(
            token
            for token in reference.token_ids[0][:8]
            if any(token not in tokens for tokens in reference.token_ids)
        )
        heard = await reader.complete(
            changed(spec, stop=make_spec(max_tokens=16, stop_token_ids=frozenset({stop_id})).stop)
        )
        for index, tokens in enumerate(reference.token_ids):
            if stop_id in tokens:
                assert heard.token_ids[index] == tokens[: tokens.index(stop_id) + 1]
                assert heard.reasons[index] is FinishReason.STOP
            else:
                assert heard.token_ids[index] == tokens
                assert heard.reasons[index] is FinishReason.LENGTH
