"""What a prefill engine and a decode engine tell each other about one request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import cast

from tensorrt_llm.bindings.executor import ContextPhaseParams, RequestType

_TYPES = {
    "context_only": RequestType.REQUEST_TYPE_CONTEXT_ONLY,
    "generation_only": RequestType.REQUEST_TYPE_GENERATION_ONLY,
    "context_and_generation": RequestType.REQUEST_TYPE_CONTEXT_AND_GENERATION,
}
# A multimodal hash has this many numbers.
_HASH_LENGTH = 8


class DisaggScheduleStyle(IntEnum):
    """Which of the two engines hears of a request first."""

    CONTEXT_FIRST = 0
    GENERATION_FIRST = 1


@dataclass(slots=True, kw_only=True)
class DisaggregatedParams:
    """The state of a request between its two engines. ``request_type`` is kept in lower case."""

    request_type: str | None = None
    first_gen_tokens: list[int] | None = None
    first_gen_log_probs: list[object] | None = None
    first_gen_logits: list[object] | None = None
    ctx_request_id: int | None = None
    opaque_state: bytes | None = None
    draft_tokens: list[int] | None = None
    disagg_request_id: int | None = None
    ctx_dp_rank: int | None = None
    ctx_info_endpoint: str | None = None
    schedule_style: DisaggScheduleStyle | None = None
    ctx_usage: dict[str, object] | None = None
    conversation_id: str | None = None
    multimodal_embedding_handles: list[dict[str, object]] | None = None
    multimodal_hashes: list[list[int]] | None = None
    mrope_position_ids_handle: dict[str, object] | None = None
    mrope_position_deltas_handle: dict[str, object] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown request type, AssertionError for handles that do not fit."""
        if self.request_type is not None:
            self.request_type = self.request_type.lower()
            self.get_request_type()
        if self.multimodal_embedding_handles is not None:
            self._check_handles(self.multimodal_embedding_handles)

    def get_context_phase_params(self) -> ContextPhaseParams:
        """Return what the decode engine is told; the global id goes before the prefill engine's own."""
        req_id = self.ctx_request_id if self.disagg_request_id is None else self.disagg_request_id
        return ContextPhaseParams(
            cast("list[int]", self.first_gen_tokens),  # None is refused there, as in the compiled part
            req_id,
            self.opaque_state,
            self.draft_tokens,
            self.ctx_dp_rank,
            self.ctx_info_endpoint,
        )

    def get_request_type(self) -> RequestType:
        """Return the type as the engine knows it. Raises ValueError also for None."""
        if self.request_type not in _TYPES:
            raise ValueError(
                f"unknown request type {self.request_type!r}: must be one of {', '.join(_TYPES)}"
            )
        return _TYPES[self.request_type]

    def _check_handles(self, handles: list[dict[str, object]]) -> None:
        hashes = self.multimodal_hashes
        if hashes is None:
            assert handles, "multimodal_embedding_handles must not be empty"
            return
        assert len(handles) == len(hashes), "as many multimodal_hashes as multimodal_embedding_handles"
        for each in hashes:
            assert isinstance(each, list), "a multimodal hash is a list"
            assert len(each) == _HASH_LENGTH, f"a multimodal hash has {_HASH_LENGTH} numbers"
            assert all(isinstance(number, int) for number in each), "a multimodal hash is made of integers"
