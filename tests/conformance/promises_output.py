"""What an engine promises about the tokens it gives and about how a request ends."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.steps import FinishReason
from tests.conformance.reader import EngineReader, make_spec, most_choices


def late_token(tokens: list[int]) -> tuple[int, int]:
    """The token of a sequence that shows up for the first time latest, and where."""
    position = max(tokens.index(token_id) for token_id in set(tokens))
    return tokens[position], position


class OutputPromises:
    """Which tokens come, how many, and the reason of the end."""

    @pytest.mark.parametrize("max_tokens", [1, 2, 7])
    async def test_length(self, reader: EngineReader, max_tokens: int) -> None:
        """Without a stop id a request ends with its last allowed token, by length."""
        heard = await reader.complete(make_spec(max_tokens=max_tokens))
        assert len(heard.tokens) == max_tokens
        assert heard.reason is heard.last_reason is FinishReason.LENGTH
        assert not heard.stop_reasons

    async def test_eos(self, reader: EngineReader) -> None:
        """An end-of-sequence id ends a request, is delivered, and is no stop reason."""
        reference = await reader.complete(make_spec())
        eos, position = late_token(reference.tokens)
        heard = await reader.complete(make_spec(eos_token_ids=frozenset({eos})))
        assert heard.tokens == reference.tokens[: position + 1]
        assert heard.reason is FinishReason.EOS
        assert not heard.stop_reasons

    async def test_stop_id(self, reader: EngineReader) -> None:
        """A stop id ends a request, is delivered, and is named as the reason."""
        reference = await reader.complete(make_spec())
        stop_id, position = late_token(reference.tokens)
        heard = await reader.complete(make_spec(stop_token_ids=frozenset({stop_id})))
        assert heard.tokens == reference.tokens[: position + 1]
        assert heard.reason is FinishReason.STOP
        assert heard.stop_reasons == {0: stop_id}

    async def test_stop_id_as_the_last_allowed_token(self, reader: EngineReader) -> None:
        """A stop id that comes as the last allowed token is the true reason, not the length."""
        reference = await reader.complete(make_spec())
        stop_id, position = late_token(reference.tokens)
        heard = await reader.complete(make_spec(stop_token_ids=frozenset({stop_id}), max_tokens=position + 1))
        assert heard.tokens == reference.tokens[: position + 1]
        assert heard.reason is FinishReason.STOP

    @pytest.mark.parametrize("field", ["eos_token_ids", "stop_token_ids"])
    async def test_min_tokens(self, reader: EngineReader, field: str) -> None:
        """Until min_tokens are out no stop id is chosen, whatever set it is in."""
        reference = await reader.complete(make_spec())
        stop: dict[str, Any] = {"min_tokens": 5, field: frozenset(reference.tokens)}
        # The reader fails the test if one of them is among the first five.
        heard = await reader.complete(make_spec(**stop))
        assert 5 <= len(heard.tokens) <= 8

    async def test_min_tokens_equal_to_max_tokens(self, reader: EngineReader) -> None:
        """A request of a fixed length gets exactly that."""
        reference = await reader.complete(make_spec())
        stop_ids = frozenset(reference.tokens)
        heard = await reader.complete(make_spec(min_tokens=8, max_tokens=8, eos_token_ids=stop_ids))
        assert len(heard.tokens) == 8
        assert heard.reason is FinishReason.LENGTH

    async def test_the_whole_context_can_be_used(self, reader: EngineReader) -> None:
        """A prompt may fill the context up to the last output token, and the output up to a short prompt."""
        context = reader.info.context_length
        long = reader.info.max_prompt_tokens or context - 1
        prompt = tuple(token_id % reader.info.vocab_size for token_id in range(7, 7 + long))
        assert len((await reader.complete(make_spec(prompt, max_tokens=1))).tokens) == 1
        assert len((await reader.complete(make_spec((5,), max_tokens=context - 1))).tokens) == context - 1

    async def test_same_seed_same_tokens(self, reader: EngineReader) -> None:
        """A seeded request says the same alone and among neighbours, early or late in the batch."""
        alone = await reader.complete(make_spec())
        before = reader.submit(make_spec((9, 8, 7, 6), max_tokens=12))
        await reader.read_step()
        among = [reader.submit(make_spec()) for _ in range(2)]
        after = reader.submit(make_spec((1,), max_tokens=3))
        await reader.read_to_end(before, after, *among)
        assert [heard.tokens for heard in among] == [alone.tokens] * 2

    async def test_choices(self, reader: EngineReader) -> None:
        """Each of n choices gets its tokens and its reason; the request ends once, with the last."""
        n = most_choices(reader)
        heard = await reader.complete(make_spec(n=n))
        assert [len(tokens) for tokens in heard.token_ids] == [8] * n
        assert heard.reasons == dict.fromkeys(range(n), FinishReason.LENGTH)

    async def test_cached_tokens(self, reader: EngineReader) -> None:
        """A prompt seen before may be found in the cache, never under another salt; tokens do not change."""
        prompt = tuple(range(20, 60))
        fresh = await reader.complete(make_spec(prompt, cache_salt="a"))
        again = await reader.complete(make_spec(prompt, cache_salt="a"))
        other = await reader.complete(make_spec(prompt, cache_salt="b"))
        assert fresh.cached_tokens == other.cached_tokens == 0
        assert again.cached_tokens < len(prompt)
        assert fresh.tokens == again.tokens == other.tokens
