"""A request as an engine wants it: validated, complete, frozen.

The spec resolver makes one `GenerationSpec` per request. After that nothing about the request
can be wrong: an engine that refuses a spec has a bug or has died.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct


class Sampling(Struct, frozen=True, kw_only=True):
    """How the next token is chosen. ``top_k`` 0 means no limit; ``temperature`` 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    # The same seed, prompt and engine give the same tokens; unset requests got a fresh one.
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken (no noise is drawn)."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def leaves_no_choice(self) -> bool:
        """Also where noise is drawn, for nothing: none but equally likely tokens are candidates."""
        return self.is_greedy or self.min_p == 1.0


class StopRules(Struct, frozen=True, kw_only=True):
    """When a choice ends. Ids in either set end it, are delivered, and count as output."""

    max_tokens: int
    # Until this many tokens are out, no stop id may be chosen. Never above max_tokens.
    min_tokens: int = 0
    # End of sequence: finish reason "eos".
    eos_token_ids: frozenset[int] = frozenset()
    # Asked for by the caller: finish reason "stop", and the id as stop_reason.
    stop_token_ids: frozenset[int] = frozenset()


class Output(Struct, frozen=True, kw_only=True):
    """What is returned beside the ids. None means not asked for."""

    logprobs: int | None = None
    prompt_logprobs: int | None = None


class GuidedKind(StrEnum):
    """The forms of a constraint; the values are the framework's keys."""

    JSON = "json"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


class Guided(Struct, frozen=True, kw_only=True):
    """What the output must look like.

    constraint: as the caller wrote it: text, list or object. grammar: what the engine's
    `SpecPreparer` made of it; None until the resolver has had it compiled.
    """

    kind: GuidedKind
    constraint: Any
    grammar: Any = None


class ProcessorEntry(Struct, frozen=True, kw_only=True):
    """One logits processor of a request: plain data, so that it can cross to another process.

    name: under which the engine knows its factory. options: the factory's keyword arguments.
    """

    name: str
    options: dict[str, Any] = {}


class Stage(StrEnum):
    """Which part of a request an engine does."""

    # Prompt and answer.
    WHOLE = "whole"
    # The prompt and one token; the KV cache is handed over to another worker.
    PREFILL = "prefill"
    # The answer, with the KV cache of a prefill worker.
    DECODE = "decode"


class Search(Struct, frozen=True, kw_only=True):
    """Choices that are the best of more; they are known at the end only, and come in one piece.

    width: sequences that are followed. is_beam: beam search, else samples ranked by their probability.
    length_penalty: above 0 prefers longer beams; None is the engine's own.
    """

    width: int
    is_beam: bool = False
    length_penalty: float | None = None


class GenerationSpec(Struct, frozen=True, kw_only=True):
    """One request, engine-ready."""

    prompt: tuple[int, ...]
    stop: StopRules
    sampling: Sampling = Sampling()
    output: Output = Output()
    guided: Guided | None = None
    # In the order in which they change the logits; a fresh instance for every choice.
    processors: tuple[ProcessorEntry, ...] = ()
    # Number of choices.
    n: int = 1
    # Where they are the best of more.
    search: Search | None = None
    # Higher goes first in the waiting room.
    priority: float = 0.0
    # Requests with different salts never share cached prompt blocks.
    cache_salt: str | None = None
    # The attention-DP rank that has to serve it; None leaves it to the engine.
    rank: int | None = None
    # Requests of one conversation shall meet the same rank.
    conversation_id: str | None = None
    # Name of the LoRA adapter.
    adapter: str | None = None
    # Most tokens of reasoning before it is ended.
    thinking_tokens: int | None = None
    stage: Stage = Stage.WHOLE
    # Of the prefill worker, as it came; the engine's `SpecPreparer` makes its own form of it.
    handoff: Any = None
    # Headers of the `actor.execute` span, for engines that trace.
    trace_headers: tuple[tuple[str, str], ...] = ()
    # A health probe of the framework: real work, but not a user's.
    is_probe: bool = False

    def with_trace_headers(self, headers: tuple[tuple[str, str], ...]) -> GenerationSpec:
        """The same request with other headers for the engine."""
        return msgspec.structs.replace(self, trace_headers=headers)

    def with_grammar(self, grammar: object) -> GenerationSpec:
        """The same request with its constraint compiled."""
        guided = msgspec.structs.replace(self.guided, grammar=grammar) if self.guided else None
        return msgspec.structs.replace(self, guided=guided)

    def with_handoff(self, handoff: object) -> GenerationSpec:
        """The same request with its hand-off read."""
        return msgspec.structs.replace(self, handoff=handoff)

    @property
    def sequences(self) -> int:
        """What it costs of the engine's capacity."""
        return self.n if self.search is None else self.search.width

    @property
    def is_movable(self) -> bool:
        """Whether a frontend can continue this request on another worker.

        Measured with ai-dynamo 1.4.2: several choices cannot be moved, and guided answers neither. A
        logits processor has a state that would begin anew.
        """
        return self.n == 1 and self.guided is None and not self.processors
