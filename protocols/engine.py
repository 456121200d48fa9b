"""The seam between the graph and a driver of an inference engine.

A driver owns its engine's threads, processes and libraries. To the graph it is a place to
submit specs and a source of steps. Everything here is called from the graph's event loop.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from protocols.maintenance import Maintenance
from protocols.spec import GenerationSpec, GuidedKind, Stage
from protocols.steps import EngineId, EngineStep

# Blocks: of an engine that does not say how many it has, and how many times those it has.
_MOST_KNOWN = 1 << 20
_KNOWN_TO_POOL = 8

NEVER = "it is not supported"
"""Why an engine lacks what it has in no configuration."""


class Figure(StrEnum):
    """What a step tells besides its deltas. One that an engine does not know is nought there all the same."""

    USED_BLOCKS = "used_blocks"
    CACHED_BLOCKS = "cached_blocks"
    PREEMPTIONS = "preemptions"


# Bytes. A salt is an id of a tenant or a session; it is hashed with the first block of every prompt.
LONGEST_SALT = 1024


class EngineCapabilities(Struct, frozen=True, kw_only=True):
    """What an engine can do. The resolver refuses everything else before the engine sees it.

    What may be lacking has the reason beside it, for callers to read: ``no_...``. It is "" where nothing
    is lacking; beside a set or a number it counts only for what that does not have.

    can_pause: one request can be held back while the others go on.
    sampling: names of the sampling options that change its output.
    max_n: choices per request. max_logprobs: alternatives per token; None means no logprobs.
    guided: the forms of constraints it obeys. guided_backend: the word for what obeys them; "" for nothing.
    processors: names of the logits processors it can run.
    role: what a worker with it does of a request; WHOLE is an aggregated worker.
    no_prompt_logprobs: of the tokens of a prompt. prompt_logprob_tokens: of the longest prompt that may ask
    for them; prompt_logprob_entries: those times the tokens that the choices may say; None means any.
    adapters: names of the LoRA adapters it has. max_beams: beams of one beam search; 1 means none.
    max_best_of: samples of which the best are returned; 0 means that all are.
    has_conversations: it keeps the requests of a conversation on one attention-DP rank.
    obeys_ranks: it serves a request on the rank that a router chose.
    no_thinking_budget: to end reasoning that gets too long.
    no_greedy_choices: several of one request, without sampling.
    holds_back_guided: whether a constraint goes together with ``min_tokens``.
    longest_salt: bytes of a cache salt.
    untold: figures that its steps do not tell, so that nobody shows nought for them.
    """

    can_pause: bool = False
    sampling: frozenset[str] = frozenset()
    max_n: int = 1
    max_logprobs: int | None = None
    no_prompt_logprobs: str = NEVER
    prompt_logprob_tokens: int | None = None
    prompt_logprob_entries: int | None = None
    guided: frozenset[GuidedKind] = frozenset()
    no_guided: str = NEVER
    guided_backend: str = ""
    processors: frozenset[str] = frozenset()
    role: Stage = Stage.WHOLE
    adapters: frozenset[str] = frozenset()
    no_adapters: str = NEVER
    max_beams: int = 1
    no_beams: str = NEVER
    max_best_of: int = 0
    has_conversations: bool = False
    obeys_ranks: bool = True
    no_thinking_budget: str = NEVER
    no_greedy_choices: str = ""
    holds_back_guided: bool = True
    longest_salt: int = LONGEST_SALT
    untold: frozenset[Figure] = frozenset()


class EngineInfo(Struct, frozen=True, kw_only=True):
    """What is known once an engine has started. Lengths in tokens.

    context_length: prompt plus output of one sequence.
    max_num_seqs: sequences that run at once, over all attention-DP ranks.
    vocab_size: token ids are 0 .. vocab_size - 1.
    max_prompt_tokens: None where a prompt may fill the context (chunked prefill).
    block_tokens, total_blocks: the paged KV cache of each attention-DP rank; None where there is none.
    A step's counts are sums over the ranks: they are compared with ``all_blocks``.
    description: one line for the operator (device, dtype, memory).
    """

    model: str
    context_length: int
    max_num_seqs: int
    vocab_size: int
    max_num_batched_tokens: int | None = None
    max_prompt_tokens: int | None = None
    block_tokens: int | None = None
    total_blocks: int | None = None
    data_parallel_size: int = 1
    bos_token_id: int = 1
    description: str = ""

    @property
    def all_blocks(self) -> int | None:
        """Blocks of the KV cache over all ranks; None where there is none."""
        return None if self.total_blocks is None else self.total_blocks * self.data_parallel_size

    @property
    def most_known_blocks(self) -> int:
        """Blocks of one rank that may be known at once, for whoever keeps books of them.

        More than the pool has: some may lie in other memories, and of some the removal may be lost.
        """
        total = self.total_blocks or _MOST_KNOWN
        return max(total, min(total * _KNOWN_TO_POOL, _MOST_KNOWN))


class SpecPreparer(Protocol):
    """What an engine does for a spec first: tries its constraint and processors, reads its hand-off.

    Never in the event loop, and one spec at a time, so that a costly one delays only its like.
    """

    def find(self, spec: GenerationSpec) -> GenerationSpec | None:
        """The prepared spec when all of it was prepared before, or is at once. Event loop.

        Raises InvalidRequest for a hand-off that cannot be read.
        """
        ...

    async def prepare(self, spec: GenerationSpec) -> GenerationSpec:
        """Prepare it and keep what can be used again. One caller at a time.

        Raises InvalidRequest for a constraint that makes no sense or costs more than is allowed, and
        for options that a logits processor does not take. Cancelling the call loses its result only.
        """
        ...


class Engine(Protocol):
    """A driver.

    Promises: every submitted id gets exactly one delta with ``is_last``, whatever happens to it
    (finished, aborted, failed), unless `next_step` raises EngineDead; deltas of one request come
    in order; a request's failure is a delta with ``error``, never an exception of `next_step`.
    Calls that come late (pause, resume or abort of what has ended; anything after `stop`) do nothing.
    """

    @property
    def name(self) -> str:
        """The word used with ``--engine``."""
        ...

    @property
    def capabilities(self) -> EngineCapabilities:
        """Known before the start."""
        ...

    @property
    def preparer(self) -> SpecPreparer | None:
        """Asked for specs with a constraint, processors or a hand-off; None where there are never any."""
        ...

    @property
    def maintenance(self) -> Maintenance | None:
        """What can be done to it between requests; None where nothing can."""
        ...

    @property
    def pending_transfers(self) -> int:
        """KV caches that were handed over and may still be read: as long the engine must live."""
        ...

    @property
    def progress(self) -> int:
        """A sign of life between steps: a number that is another one whenever the engine has computed since.

        Cheap, and read from the event loop at any time. It changes several times within any time that
        counts as a hang, however long a single step takes; it does not change while the engine only
        waits, or is stuck. A driver whose steps are its only sign counts those.
        """
        ...

    async def start(self) -> EngineInfo:
        """Load and get ready. Raises EngineStartError; StartStopped after `stop` was called.

        However long it takes, it gives the event loop back: a loop that stands still ends the process.
        May be cancelled; `stop` is called afterwards in every case.
        """
        ...

    def submit(self, engine_id: EngineId, spec: GenerationSpec) -> None:
        """Begin one request. Returns at once. ``engine_id`` was never used before."""
        ...

    def abort(self, engine_id: EngineId) -> None:
        """Ask for an early end. Idempotent; unknown and finished ids are ignored.

        The engine confirms with the request's ``is_last`` delta, finish reason "cancelled".
        """
        ...

    def pause(self, engine_id: EngineId) -> None:
        """Hold one request back: no more tokens after those under way. Needs ``can_pause``."""
        ...

    def resume(self, engine_id: EngineId) -> None:
        """Let a paused request go on."""
        ...

    async def next_step(self) -> EngineStep:
        """Wait for the next step. One caller at a time. Raises EngineDead with its cause, or after `stop`.

        Holds at most 4 undelivered steps; then an engine that can pause waits. What one that cannot says
        meanwhile grows into one step: its requests have reserved room for all of it. Cancelling the call
        loses nothing.
        Every call gives the loop at least one turn, so that a fast engine starves nobody.
        """
        ...

    async def stop(self) -> None:
        """End threads and children within a bounded time. Idempotent, also after a failed start."""
        ...
