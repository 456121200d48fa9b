"""Sleep and wake of TensorRT-LLM: its GPU memory, given back and taken again by calls that block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from actors.engines.impatience import ForeignFailure, ImpatientThreads, TookTooLong, TooManyStuck
from actors.engines.trtllm.life.memory_rules import KV_CACHE, MEMORIES, MemoryRules
from protocols.errors import MaintenanceFailed

# Weights of a large model go to the host's memory and back at some GiB a second; ranks wait for each other.
CALL_S = 180.0
# Of the library's own words, in characters.
_MOST_WORDS = 200


class TrtllmMaintenance:
    """Event loop, one call at a time; the library works in a thread of its own.

    llm: the loaded ``LLM``, None while there is none. on_cache_lost: told, in the loop, that the KV cache is
    empty now, or may be: whoever knows what lies in it must forget it. call_s: how long one call is waited
    for, in seconds. One that takes longer goes on, and until it has come back no other is made.
    """

    def __init__(
        self,
        llm: Callable[[], Any],
        rules: MemoryRules,
        on_cache_lost: Callable[[], None],
        call_s: float = CALL_S,
    ) -> None:
        self._llm = llm
        self._rules = rules
        self._on_cache_lost = on_cache_lost
        self._call_s = call_s
        self._threads = ImpatientThreads("trtllm-memory", most=1)
        # What was given back, and what may have been: of a call that failed nobody knows how far it came.
        self._known: frozenset[str] = frozenset()
        self._unsure: frozenset[str] = frozenset()

    @property
    def memories(self) -> tuple[str, ...]:
        """TensorRT-LLM's own names."""
        return MEMORIES

    @property
    def asleep(self) -> frozenset[str]:
        """What is not there, or may not be."""
        return self._known | self._unsure

    def check(self, memories: tuple[str, ...]) -> None:
        """Raises MaintenanceFailed with what an operator has to change."""
        if refusal := self._rules.refusal(memories):
            raise MaintenanceFailed(refusal)
        if not callable(getattr(self._llm(), "_collective_rpc", None)):
            raise MaintenanceFailed("this engine has no _collective_rpc, by which memory is given back")

    async def sleep(self, memories: tuple[str, ...]) -> None:
        """What sleeps already is not asked for again. Raises MaintenanceFailed, and CancelledError.

        From the first moment on these memories count as asleep, be it that the call fails or is cancelled.
        """
        self.check(memories)
        wanted = frozenset(memories) - self._known
        if not wanted:
            return
        self._unsure |= wanted
        try:
            await self._ask("sleep", wanted)
        finally:
            if wanted & self._rules.lost & {KV_CACHE}:
                self._on_cache_lost()
        self._known |= wanted
        self._unsure -= wanted

    async def wake(self) -> None:
        """All that sleeps, and all that may. Memory that is there already is none the worse for it.

        Raises MaintenanceFailed, and CancelledError; both leave everything counted as asleep.
        """
        if not self.asleep:
            return
        self._unsure, self._known = self.asleep, frozenset()
        await self._ask("wakeup", self._unsure)
        self._unsure = frozenset()

    async def _ask(self, method: str, memories: frozenset[str]) -> None:
        call = getattr(self._llm(), "_collective_rpc", None)
        if not callable(call):
            raise MaintenanceFailed(f"{method}: the engine is gone")
        tags = [memory for memory in MEMORIES if memory in memories]
        try:
            await self._threads.run(partial(call, method, args=(tags,)), self._call_s)
        except TookTooLong:
            text = f"{method}: no answer within {self._call_s:g} s; the engine is still at it"
            raise MaintenanceFailed(text) from None
        except TooManyStuck:
            raise MaintenanceFailed(f"{method}: the engine has not come back from the call before") from None
        except (Exception, ForeignFailure) as exc:
            raise MaintenanceFailed(f"{method}: {_said(exc)}") from exc


def _said(exc: BaseException) -> str:
    """The library's words name ranks and memories, never a request; of a failed rank a traceback follows."""
    first = next(iter(str(exc).splitlines()), "")
    return f"{type(exc).__name__}: {first[:_MOST_WORDS]}".removesuffix(": ")
