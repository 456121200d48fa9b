"""One sequence's way through its grammar: which tokens may come next, and whether it is complete."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from actors.engines.foreign.steering_failed import SteeringFailed, TooCostly
from actors.engines.grammars.vocabulary import Vocabulary
from actors.engines.torch.grammars.budget import TOO_COSTLY, accept_budget, mask_budget
from actors.engines.torch.grammars.noting import Note, note_token

_WORD_BITS = 32
# llguidance's words for giving up because of what it costs. Our texts are stable, and free of content.
_TOO_COMPLEX = frozenset({"ParserTooComplex", "LexerTooComplex"})
_CANNOT_GO_ON = "the grammar could not be followed any further"


def compute_mask(matcher: Any, mask: NDArray[numpy.int32]) -> None:
    """Fill ``mask``, one bit for each token. Without the GIL; never raises for what the grammar does."""
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)


class _Mask(NamedTuple):
    """Which tokens may come next, said by the ids that are fewer: those that may, or those that may not."""

    ids: NDArray[numpy.intp]
    are_allowed: bool

    @classmethod
    def of(cls, forbidden: NDArray[numpy.bool_]) -> _Mask:
        if 2 * numpy.count_nonzero(forbidden) < len(forbidden):
            return cls(numpy.flatnonzero(forbidden), are_allowed=False)
        return cls(numpy.flatnonzero(~forbidden), are_allowed=True)

    def apply(self, row: Tensor) -> None:
        """In numpy where it can be: torch would share out so small a piece of work, and wait for others."""
        logits: Any = row.numpy() if row.device.type == "cpu" else row
        ids: Any = self.ids if row.device.type == "cpu" else torch.as_tensor(self.ids, device=row.device)
        if self.are_allowed:
            kept = logits[ids]
            logits[:] = -numpy.inf
            logits[ids] = kept
        else:
            logits[ids] = -numpy.inf


class GrammarState:
    """A copy of a compiled grammar that follows the output. ``matcher`` is llguidance's, never shared.

    note: how it is told a token.

    Used by one thread at a time: a side lane's while it fills the mask or notes a token, else the engine's.
    """

    def __init__(
        self, matcher: Any, vocabulary: Vocabulary, vocab_size: int, note: Note = note_token
    ) -> None:
        self._matcher = matcher
        self._library = vocabulary.library
        self._tokens = vocabulary.tokens
        self._vocab_size = vocab_size
        self._note = note
        self._bits = numpy.zeros(-(-vocabulary.width // _WORD_BITS), dtype=numpy.int32)
        self._mask: _Mask | None = None
        self._mask_budget = mask_budget()
        self._accept_budget = accept_budget()

    def fill_mask(self) -> None:
        """On a side lane: find out which tokens may come next. Raises SteeringFailed."""
        with self._mask_budget.spending():
            compute_mask(self._matcher, self._bits)
            self._check()
            bits = numpy.unpackbits(~self._bits.view(numpy.uint8), bitorder="little")[: self._vocab_size]
            # Logits that no token belongs to, where a model has more of them than its tokenizer.
            bits[self._tokens :] = 1
            self._mask = _Mask.of(bits.view(numpy.bool_))

    def apply_mask(self, row: Tensor) -> None:
        """Forbid in ``[vocabulary]`` what may not come next. ``fill_mask`` was called since `accept`."""
        if self._mask is None:
            raise SteeringFailed("the grammar has not said what may come next")
        self._mask.apply(row)

    def accept(self, token: int) -> bool:
        """On a side lane: note the chosen token. True when the grammar is complete: nothing may follow.

        Raises SteeringFailed where llguidance gives up.
        """
        self._mask = None
        self._note(self._matcher, token, self._library, self._accept_budget)
        self._check()
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        """A matcher in error allows only the end, so that an error would look like a clean finish."""
        if self._matcher.is_error():
            if self._matcher.stop_reason() in _TOO_COMPLEX:
                raise TooCostly(TOO_COSTLY)
            raise SteeringFailed(_CANNOT_GO_ON)
