"""Which rank serves a request."""

from __future__ import annotations

from tensorrt_llm._double.late import Late
from tensorrt_llm._double.wire import GenerationRequest, Settings


class Ranking:
    """A strict wish is kept to. A relaxed one is not, here: the library may move such a request."""

    def __init__(self, settings: Settings) -> None:
        self._is_on = settings.is_attention_dp
        self._ranks = settings.ranks
        self._has_affinity = settings.has_affinity
        self._conversations: dict[str, int] = {}

    def choose(self, request: GenerationRequest, loads: list[int]) -> int:
        """loads: requests of each rank. Raises Late for a rank that does not exist."""
        wish = request.scheduling_params
        if not self._is_on:
            return 0
        if wish is not None and wish.attention_dp_rank is not None:
            if not 0 <= wish.attention_dp_rank < self._ranks:
                raise Late(f"attention_dp_rank {wish.attention_dp_rank} does not exist")
            if not wish.attention_dp_relax:
                return wish.attention_dp_rank
            others = [rank for rank in range(self._ranks) if rank != wish.attention_dp_rank]
            return min(others or [0], key=loads.__getitem__)
        freest = min(range(self._ranks), key=loads.__getitem__)
        conversation = request.conversation_params
        if conversation is not None and self._has_affinity:
            return self._conversations.setdefault(conversation.conversation_id, freest)
        return freest
