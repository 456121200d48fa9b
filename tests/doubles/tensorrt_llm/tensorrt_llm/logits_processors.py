"""Code of the caller's that looks at logits; the library has these in ``sampling_params``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class LogitsProcessor(ABC):
    """Changes ``logits`` in place before a token is sampled; it is pickled into the engine's process."""

    @abstractmethod
    def __call__(
        self,
        req_id: int,
        logits: torch.Tensor,
        token_ids: list[list[int]],
        stream_ptr: int | None,
        client_id: int | None,
    ) -> None:
        """token_ids: one list a beam, the prompt first. logits: the vocabulary is its last axis."""


class BatchedLogitsProcessor(ABC):
    """As LogitsProcessor, once a step for all requests that ask for it."""

    @abstractmethod
    def __call__(
        self,
        req_ids: list[int],
        logits: list[torch.Tensor],
        token_ids: list[list[list[int]]],
        stream_ptr: int,
        client_ids: list[int | None],
    ) -> None:
        """All lists go over the requests."""
