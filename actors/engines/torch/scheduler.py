"""Who runs in the next step. Pure bookkeeping: no tensors, no threads, no clock.

Order of arrival decides everything: the oldest waiting sequence is admitted first, the oldest
prompt is computed first, and when blocks run out the youngest sequence gives its own back.
So nobody starves, and the oldest sequence always gets on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from actors.engines.torch.blocks import BlockAllocator
from actors.engines.torch.sequence import Sequence
from protocols.errors import InternalError
from protocols.spec import GenerationSpec
from protocols.steps import EngineId

PIECE_TOKENS = 64
"""Prompts are computed in pieces that begin at multiples of this, one attention call each.

How many rows share a call decides about the last bits of each. With fixed pieces they are the same
whatever else is in the step. Large enough for the products, small enough to share a step.
"""


class Chunk(NamedTuple):
    """Tokens ``start`` .. ``start + rows - 1`` of one sequence, to be computed in this step."""

    sequence: Sequence
    start: int
    rows: int

    @property
    def end(self) -> int:
        """Position after the last token of the chunk."""
        return self.start + self.rows

    @property
    def is_sampling(self) -> bool:
        """Whether the chunk ends with the newest token, so that the next one can be chosen."""
        return self.end == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes the scheduler keeps. ``step_tokens`` exceeds ``max_num_seqs``."""

    max_num_seqs: int
    step_tokens: int
    block_tokens: int
    is_chunked_prefill: bool


class Scheduler:
    """Sequences by engine id, either waiting (no blocks) or running (blocks for all their tokens).

    ``scrub`` is called with blocks whose owner was stopped from outside: what they hold was never
    proved finite, and must not be read through a mask by the next owner.
    """

    def __init__(self, limits: Limits, blocks: BlockAllocator, scrub: Callable[[list[int]], None]) -> None:
        self._limits = limits
        self._blocks = blocks
        self._scrub = scrub
        self._sequences: dict[EngineId, Sequence] = {}
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._arrivals = 0

    def add(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        """A new sequence, last in the order of arrival."""
        sequence = Sequence(engine_id, spec, self._arrivals)
        self._arrivals += 1
        self._sequences[engine_id] = sequence
        self._waiting.append(sequence)

    def find(self, engine_id: EngineId) -> Sequence | None:
        """The sequence with this id, unless it has ended."""
        return self._sequences.get(engine_id)

    def is_idle(self) -> bool:
        """Whether a step would compute nothing: no sequence, or paused ones only."""
        return all(sequence.is_paused for sequence in self._sequences.values())

    def finish(self, sequence: Sequence, *, is_clean: bool) -> None:
        """Forget a sequence and free its blocks. Clean: it ended by its own stop rules."""
        del self._sequences[sequence.engine_id]
        if sequence.blocks:
            self._running.remove(sequence)
            self._give_back(sequence, is_clean=is_clean)
        else:
            self._waiting.remove(sequence)

    def plan(self) -> list[Chunk]:
        """The chunks of the next step: decoding sequences first, then prompts by age.

        Marks nothing as computed; the caller does that once the step has succeeded.
        """
        decodes = self._plan_decodes()
        self._admit()
        left = self._limits.step_tokens
        if self._limits.is_chunked_prefill:
            left -= len(decodes)
        return decodes + self._plan_prefills(decodes, left)

    def _plan_decodes(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for sequence in list(self._running):
            if sequence.is_paused or sequence.pending_tokens > 1:
                continue
            # A younger one may have lost its blocks to an older one a moment ago.
            if sequence.blocks and self._make_room(sequence):
                chunks.append(Chunk(sequence, sequence.computed_tokens, 1))
        return chunks

    def _make_room(self, sequence: Sequence) -> bool:
        """Get the block of the newest token. False when the sequence itself was preempted for it."""
        if len(sequence.tokens) <= len(sequence.blocks) * self._limits.block_tokens:
            return True
        while (more := self._blocks.allocate(1, sequence.blocks[-1])) is None:
            victim = self._victim()
            if victim is sequence and len(self._running) == 1:
                raise InternalError("the KV cache is smaller than one context")
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.blocks += more
        return True

    def _victim(self) -> Sequence:
        """Paused before active, young before old."""
        return max(self._running, key=lambda sequence: (sequence.is_paused, sequence.arrival))

    def _preempt(self, sequence: Sequence) -> None:
        """Back to waiting. Its tokens stay; their K/V is computed again when there is room."""
        self._running.remove(sequence)
        self._give_back(sequence, is_clean=False)
        sequence.computed_tokens = 0
        insort(self._waiting, sequence, key=lambda waiting: waiting.arrival)

    def _admit(self) -> None:
        """Move waiting sequences to running, oldest first, while slots and blocks last."""
        for sequence in [waiting for waiting in self._waiting if not waiting.is_paused]:
            if len(self._running) >= self._limits.max_num_seqs or not self._reserve(sequence):
                return
            self._waiting.remove(sequence)
            insort(self._running, sequence, key=lambda running: running.arrival)

    def _reserve(self, sequence: Sequence) -> bool:
        """Blocks for all tokens of a waiting sequence; paused ones are preempted if that helps."""
        need = -(-len(sequence.tokens) // self._limits.block_tokens)
        paused = [running for running in self._running if running.is_paused]
        # One spare block for each that runs, or the newcomer would soon be preempted again.
        spare = len(self._running) - len(paused)
        within_reach = self._blocks.free_blocks + sum(len(running.blocks) for running in paused)
        if within_reach < need + spare:
            return False
        while self._blocks.free_blocks < need + spare:
            self._preempt(self._victim())
        blocks = self._blocks.allocate(need)
        if blocks is None:
            raise InternalError(f"{need} KV blocks were free and are not")
        sequence.blocks = blocks
        return True

    def _plan_prefills(self, decodes: list[Chunk], left: int) -> list[Chunk]:
        """Share ``left`` tokens among prompts by age.

        One prompt takes at most half of what is left while others wait, so a long one never holds
        up short ones; what remains in the end goes to the oldest.
        """
        decoding = {chunk.sequence.arrival for chunk in decodes}
        prompts = [s for s in self._running if not s.is_paused and s.arrival not in decoding]
        if not self._limits.is_chunked_prefill:
            return _whole_prompts(prompts, left)
        shares: list[int] = []
        for place, sequence in enumerate(prompts):
            cap = min(sequence.pending_tokens, left if place == len(prompts) - 1 else -(-left // 2))
            # Only where a step is smaller than a piece must the oldest take less than one.
            shares.append(_in_pieces(sequence, cap) or (cap if place == 0 else 0))
            left -= shares[-1]
        for place, sequence in enumerate(prompts):
            more = _in_pieces(sequence, min(sequence.pending_tokens, shares[place] + left)) - shares[place]
            shares[place] += max(0, more)
            left -= max(0, more)
        return [Chunk(s, s.computed_tokens, shares[i]) for i, s in enumerate(prompts) if shares[i]]

    def _give_back(self, sequence: Sequence, *, is_clean: bool) -> None:
        if not is_clean:
            self._scrub(sequence.blocks)
        self._blocks.release(sequence.blocks)
        sequence.blocks = []


def _in_pieces(sequence: Sequence, rows: int) -> int:
    """How many of the next ``rows`` tokens to take, so as to end with a piece or behind the prompt."""
    end = sequence.computed_tokens + rows
    if end >= len(sequence.spec.prompt):
        return rows
    return max(0, end // PIECE_TOKENS * PIECE_TOKENS - sequence.computed_tokens)


def _whole_prompts(prompts: list[Sequence], left: int) -> list[Chunk]:
    """Prompts in one piece, oldest first. What was preempted may be longer than a step: in several."""
    chunks: list[Chunk] = []
    for sequence in prompts:
        rows = sequence.pending_tokens
        if sequence.output_tokens:
            rows = _in_pieces(sequence, min(rows, left)) or (0 if chunks else left)
        if not 0 < rows <= left:
            break
        chunks.append(Chunk(sequence, sequence.computed_tokens, rows))
        left -= rows
    return chunks
