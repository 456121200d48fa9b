"""More callers than places, inside the process: each calls ``generate()`` as the framework does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dynamo.llm.exceptions import HttpError

from tests.doubles.callers import wire_request
from tests.doubles.contexts import FakeClient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.service.worker import FacadeWorker

# How soon a steady caller that was turned away comes back: impatient, the hint says a second.
_IMPATIENCE_S = 0.02


@dataclass(slots=True)
class Tally:
    """What callers met. tokens: those that came while the run lasted. most_admitted: places taken at once."""

    completed: int = 0
    tokens: int = 0
    refusals_s: list[float] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    most_admitted: int = 0


@dataclass(frozen=True, slots=True)
class Flood:
    """steady: callers who ask again once they were answered. extra_per_s: those who come beside them."""

    worker: FacadeWorker
    tokens: int
    steady: int
    extra_per_s: float = 0.0

    def run(self, seconds: float) -> Tally:
        """So long; then everybody still there is answered."""
        return self.worker.loop.begin(self._run(seconds)).result(seconds + 60.0)

    async def _run(self, seconds: float) -> Tally:
        tally = Tally()
        until_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as callers:
            for _ in range(self.steady):
                callers.create_task(self._steady(tally, until_s))
            if self.extra_per_s:
                callers.create_task(self._extra(tally, until_s))
        return tally

    async def _steady(self, tally: Tally, until_s: float) -> None:
        while time.monotonic() < until_s:
            if not await self._ask(tally, until_s):
                await asyncio.sleep(_IMPATIENCE_S)

    async def _extra(self, tally: Tally, until_s: float) -> None:
        """Evenly, whether or not the earlier ones were answered. A loop that is late sends what is due."""
        began_s, sent = time.monotonic(), 0
        async with asyncio.TaskGroup() as callers:
            while (now_s := time.monotonic()) < until_s:
                for _ in range(int((now_s - began_s) * self.extra_per_s) - sent):
                    sent += 1
                    callers.create_task(self._ask(tally, until_s))
                await asyncio.sleep(0.002)

    async def _ask(self, tally: Tally, until_s: float) -> bool:
        """One request. False when it was turned away. Tokens count that came before the end of the run."""
        facade: Any = self.worker.facade
        wire, context = wire_request(max_tokens=self.tokens), FakeClient().context()
        tokens, asked_s = 0, time.monotonic()
        call = facade.generate(request=wire, context=context)
        try:
            while (chunk := await asyncio.create_task(_next(call))) is not None:
                tokens += len(chunk["token_ids"])
                tally.tokens += len(chunk["token_ids"]) if time.monotonic() <= until_s else 0
                tally.most_admitted = max(tally.most_admitted, self.worker.graph.ledger.admitted)
        except HttpError as exc:
            if exc.code == 429 and "retry after" in str(exc):
                tally.refusals_s.append(time.monotonic() - asked_s)
            else:
                tally.others.append(repr(exc))
            return False
        except Exception as exc:
            tally.others.append(repr(exc))
            return False
        if tokens != self.tokens:
            tally.others.append(f"{tokens} tokens instead of {self.tokens}")
        tally.completed += 1
        return True


async def _next(call: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any] | None:
    try:
        return await call.__anext__()
    except StopAsyncIteration:
        return None
