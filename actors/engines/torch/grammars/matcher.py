"""One sequence's way through its grammar: which tokens may come next, and whether it is complete."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from actors.engines.torch.steering_failed import SteeringFailed

_WORD_BITS = 32


class GrammarState:
    """A copy of a compiled grammar that follows the output. ``matcher`` is llguidance's, never shared.

    Used by one thread at a time: the engine's, and a side lane while it fills the mask.
    """

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._mask = numpy.zeros(-(-vocab_size // _WORD_BITS), dtype=numpy.int32)

    def fill_mask(self) -> None:
        """On a side lane: find out which tokens may come next. Raises SteeringFailed."""
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()

    def apply_mask(self, row: Tensor) -> None:
        """Forbid in ``[vocabulary]`` what may not come next. ``fill_mask`` was called since `accept`."""
        bits = numpy.unpackbits(self._mask.view(numpy.uint8), bitorder="little")[: self._vocab_size]
        is_allowed = torch.from_numpy(bits).to(row.device)
        row.masked_fill_(is_allowed == 0, float("-inf"))

    def accept(self, token: int) -> bool:
        """Note the chosen token. True when the grammar is complete: nothing but the end may follow.

        Raises SteeringFailed where llguidance gives up.
        """
        self._matcher.consume_token(token)
        self._check()
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        """A matcher in error allows only the end, so that an error would look like a clean finish."""
        if self._matcher.is_error():
            raise SteeringFailed(f"the grammar became too costly to follow ({self._matcher.stop_reason()})")
