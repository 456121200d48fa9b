"""Ids that may not be chosen before ``min_tokens`` are out, in the engine's process.

TensorRT-LLM holds one end id back by itself. The other ids that end an answer it would let through, and a
frontend, which knows them too, would end the answer there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class HoldBack:
    """What `SamplingParams` takes as ``logits_processor``: plain data, pickled with its request.

    until: length of prompt and answer from which on the ids may be chosen. Where the engine shows ids one
    step late they are held back for one token more.
    """

    token_ids: tuple[int, ...]
    until: int

    def __call__(
        self,
        req_id: int,
        logits: Tensor,
        token_ids: Sequence[Sequence[int]],
        stream_ptr: int | None,
        client_id: int | None,
    ) -> None:
        """The engine's process. ``logits``: the vocabulary in the last axis; ``token_ids``: of each beam."""
        if min(map(len, token_ids), default=0) >= self.until:
            return
        if stream_ptr is None:
            self._forbid(logits)
            return
        from torch import cuda  # noqa: PLC0415 - only the engine's process needs it

        stream = cuda.ExternalStream(stream_ptr)  # type: ignore[no-untyped-call]
        with cuda.stream(stream):
            self._forbid(logits)

    def _forbid(self, logits: Tensor) -> None:
        logits[..., list(self.token_ids)] = float("-inf")
