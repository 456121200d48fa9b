"""Health probes between resolver and engine: answered by its progress, or given to it when it is free."""

from __future__ import annotations

from collections.abc import Callable

from actors.ledger import Ledger
from protocols.messages import Resolved
from protocols.spec import GenerationSpec
from protocols.steps import EngineId


class HeldProbes:
    """Those that wait: while users keep an engine busy that shows no life, a probe has no answer.

    vouches: whether the engine is known to be alive without being asked. is_free_for: whether it could
    begin this at once. submit: give it the work.
    """

    def __init__(
        self,
        ledger: Ledger,
        vouches: Callable[[], bool],
        is_free_for: Callable[[GenerationSpec], bool],
        submit: Callable[[Resolved], None],
    ) -> None:
        self._ledger = ledger
        self._vouches = vouches
        self._is_free_for = is_free_for
        self._submit = submit
        self._held: dict[EngineId, Resolved] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, resolved: Resolved) -> None:
        """One more; it may be answered at once."""
        self._held[resolved.engine_id] = resolved
        self.serve()

    def serve(self) -> None:
        """Something has changed: answer whom the engine vouches for, give it what it is free for."""
        for resolved in tuple(self._held.values()):
            ticket = self._ledger.find(resolved.engine_id)
            is_vouched_for = self._vouches()
            if ticket is not None and not is_vouched_for and not self._is_free_for(resolved.spec):
                continue
            del self._held[resolved.engine_id]
            if ticket is None:
                continue
            if is_vouched_for:
                self._ledger.answer_probe(ticket)
            else:
                self._submit(resolved)
