"""Is it the engine, or what a caller wrote? A request of our own tells.

Errors of requests come as text, and a device that faulted is known by its words alone. A library that quotes
a constraint in its error would let any caller write those words.
"""

from __future__ import annotations

import asyncio
from typing import Any

from actors.engines.trtllm.library import Library
from actors.engines.trtllm.life.faults import Fault, fault_of
from actors.engines.trtllm.life.health import known_fault
from actors.engines.trtllm.requests.asking import Asking
from protocols.spec import GenerationSpec, StopRules

# One token, also behind a full batch. Whoever does not answer by then hangs, which others look after.
_PATIENCE_S = 30.0


def has_callers_text(spec: GenerationSpec) -> bool:
    """Whether an error about this request could quote its caller."""
    texts = (spec.guided, spec.cache_salt, spec.conversation_id)
    return any(text is not None for text in texts) or bool(spec.trace_headers)


class Proof:
    """Event loop. One request at a time: who asks meanwhile gets the same answer. token_id: of its prompt."""

    def __init__(self, llm: Any, library: Library, asking: Asking, token_id: int) -> None:
        self._llm = llm
        self._library = library
        self._asking = asking
        self._spec = GenerationSpec(prompt=(token_id,), stop=StopRules(max_tokens=1), is_probe=True)
        self._under_way: asyncio.Task[BaseException | None] | None = None

    async def fault(self) -> BaseException | None:
        """What ends a request that nobody else has written a word of; None where the engine still serves."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._ask(), name="trtllm-proof")
        return await asyncio.shield(self._under_way)

    def stop(self) -> None:
        """Nobody wants to know any more."""
        if self._under_way is not None:
            self._under_way.cancel()

    async def _ask(self) -> BaseException | None:
        try:
            output = self._llm.generate_async(**self._asking.keywords(self._spec))
            async with asyncio.timeout(_PATIENCE_S):
                async for _ in output:
                    continue
        except TimeoutError:
            return known_fault(self._llm)
        except Exception as exc:
            return exc if fault_of(exc, self._library) is Fault.ENGINE else known_fault(self._llm)
        return None
