"""What engines promise that run logits processors."""

from __future__ import annotations

import msgspec
import pytest

from protocols.errors import InvalidRequest
from protocols.spec import ProcessorEntry
from tests.conformance.reader import EngineReader, changed, make_spec, most_choices, preparer_of


class ProcessorPromises:
    """A subclass has a fixture `forcing`: the entry of a processor that leaves token FORCED alone."""

    FORCED = 9

    async def test_it_decides_for_its_own_request(
        self, reader: EngineReader, forcing: ProcessorEntry
    ) -> None:
        """For every choice, and for nobody else; its price is told."""
        plain = await reader.complete(make_spec())
        n = most_choices(reader)
        spec = await preparer_of(reader).prepare(changed(make_spec(n=n), processors=(forcing,)))
        forced, beside = reader.submit(spec), reader.submit(make_spec())
        await reader.read_to_end(forced, beside)
        assert forced.token_ids == [[self.FORCED] * 8] * n
        assert beside.tokens == plain.tokens
        # What was counted in the last step may be told with the next one.
        await reader.complete(make_spec())
        assert reader.processor_tokens[forcing.name] == 8 * n

    async def test_options_that_it_does_not_take_are_refused(
        self, reader: EngineReader, forcing: ProcessorEntry
    ) -> None:
        """Before the engine has the request."""
        wrong = msgspec.structs.replace(forcing, options={"no such option": 1})
        with pytest.raises(InvalidRequest):
            await preparer_of(reader).prepare(changed(make_spec(), processors=(wrong,)))
