"""One running answer: its tokens, how far they are computed, and the blocks that hold them."""

from __future__ import annotations

from protocols.spec import GenerationSpec
from protocols.steps import EngineId


class Sequence:
    """State of one sequence. Only the engine's thread touches it.

    tokens: prompt and output so far. computed_tokens: how many of them have K/V in the cache.
    blocks: the KV blocks in order of position. arrival: smaller came first.
    """

    __slots__ = ("arrival", "blocks", "computed_tokens", "engine_id", "is_paused", "spec", "tokens")

    def __init__(self, engine_id: EngineId, spec: GenerationSpec, arrival: int) -> None:
        self.engine_id = engine_id
        self.spec = spec
        self.arrival = arrival
        self.tokens = list(spec.prompt)
        self.computed_tokens = 0
        self.blocks: list[int] = []
        self.is_paused = False

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.spec.prompt)

    @property
    def pending_tokens(self) -> int:
        """Tokens still without K/V. At least 1: the newest one is computed by the next step."""
        return len(self.tokens) - self.computed_tokens
