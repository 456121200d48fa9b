"""Who runs in the next step. Pure bookkeeping: no tensors, no threads, no clock.

Order of arrival decides everything: the oldest waiting sequence is admitted first, the oldest
prompt is computed first, and when blocks run out the youngest sequence gives its own back.
So nobody starves, and the oldest sequence always gets on.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from actors.engines.torch.block_pool import BlockPool
from actors.engines.torch.prefix_cache import Entry
from actors.engines.torch.sequence import Request, Sequence
from protocols.bounds import Bound, OnBound, ignore_bound
from protocols.errors import InternalError
from protocols.spec import GenerationSpec
from protocols.steps import EngineId

PIECE_TOKENS = 64
"""Prompts are computed in pieces that begin at multiples of this, one attention call each.

How many rows and keys a call has decides about the last bits of each row, so all have the same
(`batch`). A chunk or a hit may begin inside a piece; whole ones waste nothing. Large enough for the
products, small enough to share a step.

What is promised for float32 on a CPU with packed linears and blocks that divide 16 tokens or are a multiple
of them: a request has the same logits, bit by bit, alone, in any batch, in any chunks, after a preemption,
as any of n choices, and with the beginning of its prompt found in the cache. The exception is a prompt that
goes on from what was generated (the next turn of a chat, a request moved from another worker): those tokens
were computed one by one and are not computed again, which the last bits show.
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
    """Requests by engine id; their sequences either wait (no blocks) or run (blocks for all their tokens).

    on_bound: told of every sequence that has to give its blocks back, and of every step that had not room
    enough for all that is left of the prompts.
    """

    def __init__(self, limits: Limits, pool: BlockPool, on_bound: OnBound = ignore_bound) -> None:
        self._on_bound = on_bound
        self._limits = limits
        self._pool = pool
        self._requests: dict[EngineId, Request] = {}
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._arrivals = 0
        # Whose sequences lost their blocks since `take_preempted`.
        self._preempted: list[EngineId] = []

    def add(self, engine_id: EngineId, spec: GenerationSpec) -> Request:
        """A new request, last in the order of arrival."""
        request = Request(engine_id, spec, self._arrivals)
        self._arrivals += spec.n
        self._requests[engine_id] = request
        self._waiting += request.sequences
        return request

    def find(self, engine_id: EngineId) -> Request | None:
        """The request with this id, unless it has ended."""
        return self._requests.get(engine_id)

    def chosen(self, sequence: Sequence) -> None:
        """A token was chosen behind what is computed of this sequence, before it is appended."""
        if sequence.blocks:
            self._pool.learn(sequence)
        sequence.request.is_prompt_known = True

    def finish(self, sequence: Sequence, *, is_clean: bool) -> None:
        """Forget a sequence and free its blocks. Clean: it ended by its own stop rules."""
        request = sequence.request
        request.ended(sequence)
        if not request.sequences:
            del self._requests[request.engine_id]
        if sequence.blocks:
            self._running.remove(sequence)
            self._pool.take_back(sequence, is_proved=is_clean)
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
        decoding = {chunk.sequence.arrival for chunk in decodes}
        prompts = [s for s in self._running if s.is_ready and s.arrival not in decoding]
        prefills = self._plan_prefills(prompts, left)
        if len(prefills) < len(prompts) or not all(chunk.is_sampling for chunk in prefills):
            self._on_bound(Bound.STEP_TOKENS)
        return decodes + prefills

    def _plan_decodes(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for sequence in list(self._running):
            if not sequence.is_ready or sequence.pending_tokens > 1:
                continue
            # A younger one may have lost its blocks to an older one a moment ago.
            if sequence.blocks and self._make_room(sequence):
                chunks.append(Chunk(sequence, sequence.computed_tokens, 1))
        return chunks

    def _make_room(self, sequence: Sequence) -> bool:
        """Get the block of the newest token. False when the sequence itself was preempted for it."""
        if len(sequence.tokens) <= len(sequence.blocks) * self._limits.block_tokens:
            return True
        while not self._pool.give_one_more(sequence):
            victim = self._victim()
            if victim is sequence and len(self._running) == 1:
                raise InternalError("the KV cache is smaller than one context")
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _victim(self) -> Sequence:
        """Paused before active, young before old."""
        return max(self._running, key=lambda sequence: (sequence.is_paused, sequence.arrival))

    def _preempt(self, sequence: Sequence) -> None:
        """Back to waiting. Its tokens stay; what is not in the cache any more is computed again."""
        self._on_bound(Bound.KV_BLOCKS)
        self._preempted.append(sequence.request.engine_id)
        self._running.remove(sequence)
        if not sequence.output_tokens:
            sequence.lost.append(range(sequence.known_tokens, sequence.computed_tokens))
        self._pool.take_back(sequence, is_proved=False)
        insort(self._waiting, sequence, key=lambda waiting: waiting.arrival)

    def take_preempted(self) -> tuple[EngineId, ...]:
        """Whose sequences went back to waiting since the last call, one entry each."""
        taken, self._preempted = tuple(self._preempted), []
        return taken

    def _admit(self) -> None:
        """Move waiting sequences to running, oldest first, while slots and blocks last."""
        for sequence in [waiting for waiting in self._waiting if waiting.is_ready]:
            if len(self._running) >= self._limits.max_num_seqs or not self._reserve(sequence):
                return
            self._waiting.remove(sequence)
            insort(self._running, sequence, key=lambda running: running.arrival)

    def _reserve(self, sequence: Sequence) -> bool:
        """Blocks for all tokens of a waiting sequence; paused ones are preempted if that helps."""
        need = -(-len(sequence.tokens) // self._limits.block_tokens)
        # One spare block for each that runs, or the newcomer would soon be preempted again.
        spare = sum(not running.is_paused for running in self._running)
        known = self._pool.find(sequence, _reusable_tokens(sequence))
        short = need + spare - self._pool.reach_of(known)
        if short > 0 and short > self._blocks_of_paused(known):
            return False
        while need + spare > self._pool.reach_of(known):
            victim = self._victim()
            if not victim.is_paused:
                return False
            self._preempt(victim)
        self._pool.give(sequence, known, need)
        return True

    def _blocks_of_paused(self, known: list[Entry]) -> int:
        """Blocks beside the known ones that would be available if all paused sequences were preempted."""
        paused = [running for running in self._running if running.is_paused]
        shared = Counter(entry for sequence in paused for entry in sequence.entries)
        for entry in known:
            shared.pop(entry, None)
        own = sum(len(sequence.blocks) - len(sequence.entries) for sequence in paused)
        return own + sum(count == entry.holders for entry, count in shared.items())

    def _plan_prefills(self, prompts: list[Sequence], left: int) -> list[Chunk]:
        """Share ``left`` tokens among prompts by age.

        One prompt takes at most half of what is left while others wait, so a long one never holds
        up short ones; what remains in the end goes to the oldest.
        """
        if not self._limits.is_chunked_prefill:
            return _whole_prompts(prompts, left)
        caps = _caps(prompts)
        shares: list[int] = []
        for place, sequence in enumerate(prompts):
            cap = min(sequence.pending_tokens, left if place == len(prompts) - 1 else -(-left // 2))
            cap = min(cap, caps[place])
            # Only where a step is smaller than a piece must the oldest take less than one.
            shares.append(_in_pieces(sequence, cap) or (cap if place == 0 else 0))
            left -= shares[-1]
        for place, sequence in enumerate(prompts):
            most = min(sequence.pending_tokens, shares[place] + left, caps[place])
            more = _in_pieces(sequence, most) - shares[place]
            shares[place] += max(0, more)
            left -= max(0, more)
        return [Chunk(s, s.computed_tokens, shares[i]) for i, s in enumerate(prompts) if shares[i]]


def _caps(prompts: list[Sequence]) -> list[int]:
    """Most rows of each prompt in one step.

    Logits of every row of a prompt are large: one piece of one prompt a step, the oldest first.
    """
    caps: list[int] = []
    is_taken = False
    for sequence in prompts:
        if wants_prompt_logits(sequence):
            caps.append(0 if is_taken else PIECE_TOKENS)
            is_taken = True
        else:
            caps.append(len(sequence.tokens))
    return caps


def wants_prompt_logits(sequence: Sequence) -> bool:
    """Whether the logits of all rows of its prompt are wanted, not only the last one's."""
    return (
        sequence.index == 0
        and sequence.spec.output.prompt_logprobs is not None
        and not sequence.output_tokens
    )


def _reusable_tokens(sequence: Sequence) -> int:
    """How much of a sequence may come from the cache: the newest token is always computed.

    The logits of a prompt that was not computed do not exist, so who wants them reads nothing.
    """
    return 0 if wants_prompt_logits(sequence) else len(sequence.tokens) - 1


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
