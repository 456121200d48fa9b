"""What engines promise that obey constraints."""

from __future__ import annotations

import pytest

from protocols.errors import InvalidRequest
from protocols.spec import Guided, GuidedKind
from protocols.steps import FinishReason
from tests.conformance.reader import EngineReader, changed, make_spec, most_choices, preparer_of


class GuidedPromises:
    """A subclass has a fixture `constraint`: one that ends by itself."""

    async def test_it_is_followed_to_its_end(self, reader: EngineReader, constraint: Guided) -> None:
        """By every choice; the end is no length, and others say what they always say."""
        plain = await reader.complete(make_spec())
        spec = changed(make_spec(n=most_choices(reader), max_tokens=40), guided=constraint)
        guided = reader.submit(await preparer_of(reader).prepare(spec))
        beside = reader.submit(make_spec())
        await reader.read_to_end(guided, beside)
        assert beside.tokens == plain.tokens
        assert set(guided.reasons.values()) <= {FinishReason.STOP, FinishReason.EOS}
        assert all(len(tokens) < 40 for tokens in guided.token_ids)

    async def test_what_was_prepared_is_found(self, reader: EngineReader, constraint: Guided) -> None:
        """At once, for an equal constraint of another request."""
        preparer = preparer_of(reader)
        await preparer.prepare(changed(make_spec(), guided=constraint))
        found = preparer.find(changed(make_spec((1, 2)), guided=constraint))
        assert found is not None
        assert found.prompt == (1, 2)
        assert found.guided is not None
        assert found.guided.grammar is not None

    async def test_what_makes_no_sense_is_refused(self, reader: EngineReader) -> None:
        """By the request's own error; the engine goes on."""
        with pytest.raises(InvalidRequest):
            await preparer_of(reader).prepare(
                changed(make_spec(), guided=Guided(kind=GuidedKind.REGEX, constraint="("))
            )
        await reader.complete(make_spec())
